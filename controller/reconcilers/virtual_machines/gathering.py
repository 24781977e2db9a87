"""Gathers the input of the decision about one machine, from informers and, where these may be outdated, from the server."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from apiserver.apis.core.resources import PODS, PRIORITY_CLASSES
from apiserver.apis.meta import errors
from apiserver.apis.meta.objects import NamespacedName, Object, key_of, name_of, namespace_of, uid_of
from apiserver.apis.virt import structure
from apiserver.apis.virt.hardware import disks
from apiserver.apis.virt.kinds import dig_migration, dig_vm
from apiserver.apis.virt.lifecycle import failed_starts, node_loss, phases, power
from apiserver.apis.virt.places import names
from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from apiserver.apis.virt.spec import attachments, chosen_cpu, disk_uses, hot_plug, reserved_claims
from apiserver.client.rest import Client
from controller.reconcilers import disk_claims, precedence
from controller.reconcilers.indexes import Informers, Mac, NodeFile, claims_for, macs_of_vm, offers_kvm, storage_of_vm
from controller.reconcilers.launcher_pods import launcher_pod
from controller.reconcilers.nodes.node_reports import NodeReports, incompatible_nodes
from controller.reconcilers.pods import evidence, kubelet_events, liveness, networks, ownership, pod_state
from controller.reconcilers.pods.absences import Absences
from controller.reconcilers.pods.evidence import Timed
from controller.reconcilers.pods.kubelet_events import KubeletEvents
from controller.reconcilers.pods.liveness import Absent, Evidence
from controller.reconcilers.pods.ownership import Owner, Reference
from controller.reconcilers.settings import Settings
from controller.reconcilers.shared import Shared
from controller.reconcilers.trimming import trim_pod
from controller.reconcilers.virtual_machines import attempts, restart_turns, unreachable_nodes, validation
from controller.reconcilers.virtual_machines.endings import Endings
from controller.reconcilers.virtual_machines.observed import Observed
from controller.reconcilers.virtual_machines.refusals import Refusals
from controller.reconcilers.virtual_machines.trials import Trials
from controller.runtime.clock import Clock

LIVE_PAGE: Final = 2
"""A tenant can make pods of 12 MiB, which are read untrimmed."""
PRIORITY_SECONDS: Final = 30.0
"""Many machines ask at once for the PriorityClasses."""


class Gathering:
    """Gathers the state of machines, and records when their pods disappeared or ended."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        settings: Settings,
        informers: Informers,
        reports: NodeReports,
        *,
        targets: Absences,
        elapsed: Callable[[], float],
    ) -> None:
        """``targets`` are the Absences of target pods, shared with the migrations' loop; ``elapsed`` returns monotonic seconds."""
        self._client = client
        self._clock = clock
        self._settings = settings
        self._informers = informers
        self._reports = reports
        self._own_pods = Absences(elapsed)
        self._targets = targets
        self._endings = Endings(elapsed)
        self.refusals = Refusals(elapsed)
        self.trials = Trials(elapsed)
        self._priorities = Shared[restart_turns.Priorities](elapsed, PRIORITY_SECONDS)
        self._non_operational = Shared[dict[str, failed_starts.Verdict]](elapsed, settings.times.shared)
        self._lost_machines = Shared[restart_turns.Queue](elapsed, settings.times.shared)

    def forget(self, key: NamespacedName) -> None:
        """Forget a machine that is gone."""
        self._own_pods.forget(key)
        self._endings.forget(key)
        self.refusals.forget(key)

    async def gather(self, vm: Object) -> Observed:
        """Return what the plan needs about the machine; read it and its pods from the server before a pod's absence decides anything."""
        migrations = list(self._informers.migrations_of(key_of(vm)))
        vm, pods, found = await self._pods(vm, migrations)
        now = self._clock.now()
        rivals = self._rivals(vm)
        starting = _starting_pod(vm, pods)
        events = KubeletEvents() if starting is None else await kubelet_events.gather(self._client, vm, starting, now)
        return Observed(
            vm=vm,
            pods=pods,
            claims={**self._claims_to_attach(vm), **claims_for(vm, self._informers.claims)},
            attachment_pods=self._attachment_pods(vm),
            wanted_in_use=self._wanted_in_use(vm),
            now=now,
            settings=self._settings,
            kvm_offered=offers_kvm(self._informers.nodes),
            evidence=found,
            refusals=self.refusals.messages(key_of(vm)),
            migrations=tuple(migrations),
            targets=frozenset(ownership.target_name(each) for each in migrations if ownership.held_by(each)),
            rested=self._endings.rested(vm, now),
            namesakes=() if attempts.is_open(vm) else self.namesakes(vm, macs_of_vm(vm)),
            claims_in_use=disk_claims.claims_in_use(vm, rivals),
            servers_in_use=disk_claims.servers_in_use(vm, rivals),
            files_in_use=self._files_in_use(vm, starting),
            networks=await networks.gather(self._client, vm) if reads_networks(vm) else networks.Found(),
            mount_events=events.mounts,
            sandbox_events=events.sandboxes,
            incompatible=incompatible_nodes(self._informers.leases),
            fenced=self._informers.fenced_nodes(vm),
            non_operational={} if attempts.is_open(vm) else self._non_operational.value(lambda: self._informers.non_operational(now)),
            lost=await self._lost(vm),
            nodes=() if attempts.is_open(vm) or not chosen_cpu.is_to_choose(vm) else tuple(self._informers.nodes.list()),
        )

    async def _lost(self, vm: Object) -> restart_turns.Queue:
        """Return the queue of machines of lost nodes; empty unless this one was lost and has no open attempt."""
        if attempts.is_open(vm) or not node_loss.is_lost(vm):
            return restart_turns.Queue()
        priorities = await self._priorities.awaited(self._read_priorities)
        return self._lost_machines.value(lambda: restart_turns.Queue(tuple(self._informers.machines_of_lost_nodes()), priorities))

    async def _read_priorities(self) -> restart_turns.Priorities:
        return restart_turns.priorities_of((await self._client.list(PRIORITY_CLASSES))["items"])

    async def _pods(self, vm: Object, migrations: list[Object]) -> tuple[Object, tuple[Object, ...], Evidence]:
        """Return the machine, its pods and the evidence, from the informers, or from the server before something depends on them.

        The server is also read before a fenced node ends an attempt, and before the first report that the pod is on an unreachable node:
        a person who reads that may delete the pod, and its deletion then counts.
        """
        own, pods = ownership.of_status(vm), self._known_pods(vm, self._references(vm, migrations))
        its_own = [pod for pod in pods if own is not None and ownership.is_meant(pod, own, vm)]
        if not _matters(vm) or any(map(liveness.may_run, its_own)):
            found = await self._evidence(vm, own, pods, [])
            verdicts = [liveness.verdict(pod, found) for pod in its_own]
            is_new = liveness.LOST in verdicts and not unreachable_nodes.is_reported(vm)
            if not is_new and liveness.FENCED not in verdicts and liveness.SEALED not in verdicts:
                return vm, pods, found
        # The copy of the machine may be older than that of a Migration that moved it. Then the pod in its status is over, and the pod with
        # the guest would seem to belong to no machine.
        vm = await self._live(vm)
        own, pods = ownership.of_status(vm), await self._live_pods(vm, self._references(vm, migrations))
        return vm, pods, await self._evidence(vm, own, pods, self._absent_targets(vm, migrations, pods))

    async def _live(self, vm: Object) -> Object:
        try:
            found = await self._client.get(VIRTUAL_MACHINES, name_of(vm), namespace_of(vm))
        except errors.NotFound:
            return vm
        return validation.as_far_as_sound(found) if uid_of(found) == uid_of(vm) else vm

    def _rivals(self, vm: Object) -> tuple[Object, ...]:
        """Return the machines that block a start. Before there is a pod: those with precedence; after: those with a guest.

        The difference keeps two simultaneous starts from waiting for each other; virt-api ensures that only one gets its guest.
        """
        if attempts.is_open(vm) and phases.phase_of(vm) != phases.SCHEDULING:
            return ()
        found = (each for storage in storage_of_vm(vm) for each in self._informers.holders_of(storage))
        others = {name_of(each): each for each in found if namespace_of(each) == namespace_of(vm) and uid_of(each) != uid_of(vm)}
        if attempts.is_open(vm):
            return tuple(each for each in others.values() if phases.keeps_guest(each))
        return tuple(each for each in others.values() if precedence.goes_before(each, vm))

    def _files_in_use(self, vm: Object, pod: Object | None) -> tuple[str, ...]:
        """Return the node files that a machine in phase Scheduling must wait for, with their machines, as texts."""
        node = pod_state.node_of(pod)
        files = map(NodeFile, disk_claims.files_of(vm))
        found = (each for file in files for each in self._informers.holders_of(file))
        there = {uid_of(each): each for each in found if node and dig_vm(each, "status", "nodeName") == node}
        others = [each for uid, each in there.items() if uid != uid_of(vm) and phases.phase_of(each) in phases.WITH_GUEST]
        return tuple(f"{path} of node {node} by {_who(vm, other)}" for other in others for path in disk_claims.contested_files(vm, other))

    def _attachment_pods(self, vm: Object) -> tuple[Object, ...]:
        owned = self._informers.pods_of(Owner(namespace_of(vm), uid_of(vm)))
        return tuple(each for each in owned if ownership.is_attachment(each, vm))

    def _claims_to_attach(self, vm: Object) -> dict[str, Object | None]:
        claims = (disks.claim_of(each) for each in hot_plug.added(vm))
        return {claim: self._informers.claims.get(namespace_of(vm), claim) for claim in claims if claim}

    def _wanted_in_use(self, vm: Object) -> dict[str, str]:
        """Return, by claim of a disk added to the running machine, another machine that holds or reserved it, in words."""
        uses = disk_uses.uses({"devices": {"disks": list(hot_plug.added(vm))}})
        found = {}
        for claim, use in uses.items():
            holders = self._informers.holders_of(NamespacedName(namespace_of(vm), claim))
            others = [each for each in holders if uid_of(each) != uid_of(vm)]
            in_use = (name_of(each) for each in others if disk_claims.clashes(claim, use, each))
            reserved = (f"{name_of(each)}, which gets it first" for each in others if _has_reserved(each, claim, use))
            if other := next(in_use, "") or (next(reserved, "") if claim not in reserved_claims.uses(vm) else ""):
                found[claim] = other
        return found

    def namesakes(self, vm: Object, macs: Iterable[Mac]) -> tuple[str, ...]:
        """Return the names of other machines with a pod and one of these MAC addresses, at most ``MAX_NAMESAKES`` per address."""
        found = (each for mac in macs for each in self._informers.machines_with_mac(mac))
        return tuple(sorted({name_of(each) for each in found if uid_of(each) != uid_of(vm) and phases.phase_of(each) in phases.WITH_POD}))

    def _known_pods(self, vm: Object, references: tuple[Reference, ...]) -> tuple[Object, ...]:
        owned = self._informers.pods_of(Owner(namespace_of(vm), uid_of(vm)))
        pods = {uid_of(each): each for each in owned if not ownership.is_attachment(each, vm)}
        for reference in references:
            found = self._informers.pods.get(namespace_of(vm), reference.name)
            if found is not None and ownership.is_meant(found, reference, vm):
                pods[uid_of(found)] = found
        return tuple(pods.values())

    async def _live_pods(self, vm: Object, references: tuple[Reference, ...]) -> tuple[Object, ...]:
        selector = f"{names.CREATED_BY_LABEL}={uid_of(vm)}"
        listed = await self._client.list(PODS, namespace_of(vm), label_selector=selector, limit=LIVE_PAGE, trim=trim_pod)
        its_own = (each for each in listed["items"] if ownership.is_controlled_by(each, vm))
        pods = {uid_of(each): each for each in its_own if not ownership.is_attachment(each, vm)}
        for reference in references:
            if reference.uid in pods:
                continue
            try:
                found = await self._client.get(PODS, reference.name, namespace_of(vm))
            except errors.NotFound:
                continue
            if ownership.is_meant(found, reference, vm) or ownership.is_controlled_by(found, vm):
                pods[uid_of(found)] = found
        return tuple(pods.values())

    async def _evidence(self, vm: Object, own: Reference | None, pods: tuple[Object, ...], targets: list[Timed]) -> Evidence:
        absent = [*self._absent_own(vm, own, pods), *targets]
        nodes = {pod_state.node_of(pod) for pod in pods if liveness.may_run(pod)} | {each.pod.node for each in targets}
        if own is not None and self._own_pods.may_run(vm, own.uid):
            nodes.add(_node_of(vm))
        if not attempts.is_open(vm):
            nodes.add(dig_vm(vm, "spec", "nodeName") or "")
        return await evidence.gather(self._reports, nodes, absent)

    def _absent_own(self, vm: Object, own: Reference | None, pods: tuple[Object, ...]) -> list[Timed]:
        """Return the pod in the status if it is gone and a guest may run in it; update the Absences."""
        if own is None or not own.uid or not attempts.is_handled(vm):
            self._own_pods.forget(key_of(vm))
            return []
        if (found := next((pod for pod in pods if uid_of(pod) == own.uid), None)) is not None:
            self._own_pods.present(vm, found)
            return []
        lingers = self._own_pods.left(vm, own.uid, launcher_pod.grace_seconds(vm))
        reported = unreachable_nodes.is_reported(vm) and not self._own_pods.went_first(vm, own.uid)
        return [Timed(Absent(own.name, own.uid, _node_of(vm), lingers, went_with_node=reported), self._own_pods, vm)]

    def _references(self, vm: Object, migrations: list[Object]) -> tuple[Reference, ...]:
        return (*ownership.references(vm, migrations), *(ownership.target_of(each) for each in migrations if self._has_let_go(each)))

    def _has_let_go(self, migration: Object) -> bool:
        """Return whether an unsuccessful Migration has a target that was deleted and not seen to end."""
        is_over = phases.phase_of(migration) in phases.MIGRATION_FINAL - {phases.SUCCEEDED}
        return is_over and self._targets.may_run(migration, ownership.target_of(migration).uid)

    def _absent_targets(self, vm: Object, migrations: list[Object], pods: tuple[Object, ...]) -> list[Timed]:
        """Return the targets that may have the guest and do not exist on the server; update the Absences."""
        own, there = ownership.of_status(vm), {uid_of(pod): pod for pod in pods}
        found: list[Timed] = []
        for each in migrations:
            target = ownership.target_of(each)
            if not target.uid or target == own or not (self._has_let_go(each) or ownership.may_have_arrived(each, vm, pods)):
                continue
            if (pod := there.get(target.uid)) is not None:
                self._targets.present(each, pod)
                continue
            node = str(dig_migration(each, "status", "targetNode") or "")
            lingers = self._targets.left(each, target.uid, launcher_pod.grace_seconds(vm))
            found.append(Timed(Absent(target.name, target.uid, node, lingers, migration=name_of(each)), self._targets, each))
        return found


def _node_of(vm: Object) -> str:
    return str(dig_vm(vm, "status", "nodeName") or "")


def reads_networks(vm: Object) -> bool:
    """Return whether a machine with further networks is in phase Scheduling, or to be started without an open attempt.

    Then a missing network blocks it.
    """
    return bool(attachments.of(vm)) and (phases.phase_of(vm) == phases.SCHEDULING if attempts.is_open(vm) else power.decide(vm).on)


def _starting_pod(vm: Object, pods: tuple[Object, ...]) -> Object | None:
    reference = ownership.of_status(vm)
    if reference is None or phases.phase_of(vm) != phases.SCHEDULING:
        return None
    return next((each for each in pods if ownership.is_meant(each, reference, vm)), None)


def _who(vm: Object, other: Object) -> str:
    same = namespace_of(other) == namespace_of(vm)
    return f"virtual machine {name_of(other)}" if same else "a virtual machine of another namespace"


def _has_reserved(vm: Object, claim: str, use: disk_uses.Use) -> bool:
    theirs = None if structure.of_virtual_machine(vm) else reserved_claims.uses(vm).get(claim)
    return theirs is not None and disk_uses.clash(use, theirs)


def _matters(vm: Object) -> bool:
    """Return whether the next plan depends on the absence of pods: an attempt is open or follows, or the machine is being deleted."""
    decision, current = power.decide(vm), power.current_attempt(vm)
    return decision.reason == "Deleting" or attempts.is_open(vm) or (decision.on and current > 0)
