"""Drive the guests whose ``status.nodeName`` is this node: gather, plan, apply.

A start writes the VM once: phase, conditions, domain, interfaces, graphics and times together. Afterwards it is written when something
changed and never on a timer. Every write carries the resourceVersion it was decided on; Conflict means that the loop looks again.

A launcher changes its mind as often as its guest likes. What is written of that is a burst of ``WRITES_BURST`` and then one every
``WRITE_SECONDS`` a machine, always of the newest state; changes of the phase, of which an attempt has three, are written at once.

Nothing is remembered across restarts. What virt-launcher says (``Hello`` carries everything) and what the API holds are enough, and
virt-launcher starts a domain once in the life of a pod, whatever it is told.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal, Protocol, assert_never, get_args

from apiserver.apis.meta import objects
from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.resources import Resource
from apiserver.apis.virt import access_credentials, chosen_cpu, conditions, phases, power
from apiserver.apis.virt.chosen_cpu import Chosen
from apiserver.apis.virt.described import domain_of
from apiserver.apis.virt.hardware import plugin_disks
from apiserver.apis.virt.hardware.plugin_disks import Served
from apiserver.apis.virt.resources import VIRTUAL_MACHINES
from controller.runtime.clock import Clock
from controller.runtime.flowcontrol import TokenBucket
from controller.runtime.reconciling import Request, Result
from controller.runtime.validating import Events
from handler.devices import ownership
from handler.network.binding import Interface, Unsupported
from handler.pods.hanging import StorageHangs
from handler.pods.launcher import Connection, Disconnected, Pending, Refused
from handler.pods.links import Link, Links, Who
from handler.probes.tally import Verdict
from handler.reconcilers import (
    dhcp_faults,
    disk_faults,
    guest_imports,
    guest_plan,
    guest_probes,
    guest_status,
    guest_words,
    passt_faults,
    shared_filesystems,
    wiring,
)
from handler.reconcilers.access_credentials import told as access_credentials_told
from handler.reconcilers.guest_status import End
from handler.storage.adding import DisksFault
from launcher.protocol import messages

logger = logging.getLogger(__name__)

IMAGE_SECONDS: Final = 2.0
"""Seconds until a pod whose claims have no image yet is asked again: a file on another machine's disk has no event."""
START_PATIENCE_SECONDS: Final = 2.0
"""A start takes half a second; the pass of one that takes longer ends, and looks again at what is asked of the machine."""
START_AGAIN_SECONDS: Final = 0.5
MAX_STEPS: Final = 8
"""Actions in one pass; more would mean that launcher and plan disagree for ever."""
DISAGREE_SECONDS: Final = 5.0
"""Until a launcher is asked again that says it did something and does not show it."""
NOT_UNDERSTOOD_SECONDS: Final = 30.0
"""Until a machine is looked at again whose launcher is not understood: another write of it may not have had its turn."""
WRITES_BURST: Final = 20
WRITE_SECONDS: Final = 5.0
"""Twelve writes a minute in the long run; a live migration, which is worth more, writes five in all."""


class Machines(Protocol):
    """The virtual machines of this node (an informer)."""

    def get(self, namespace: str, name: str) -> Object | None:
        """Return one."""
        ...

    def remember(self, obj: Object) -> None:
        """Take in what a write returned."""
        ...


class Writer(Protocol):
    """The call of the API client that writes a status."""

    async def update(self, resource: Resource, obj: Object, *, subresource: str | None = None) -> Object:
        """Replace it."""
        ...


class Node(Protocol):
    """Preparation of a pod before its guest starts."""

    async def give_devices(self, vm: Mapping[str, Any], pod_uid: str, connection: Connection) -> messages.Accelerator:
        """Give the pod's device nodes to its user; return what they let its guest run with. Raises NotTheDevice, StorageHangs, OSError."""
        ...

    async def prepare_network(self, vm: Mapping[str, Any], pod_uid: str, connection: Connection) -> tuple[Interface, ...]:
        """Set up the pod's network. Raises Unsupported, CommandFailed, Fault."""
        ...

    async def pass_on(self, connection: Connection, addresses: Sequence[str]) -> None:
        """Pass what comes to a pod that its guest has left on to a pod with these addresses. Raises CommandFailed."""
        ...


class Probes(Protocol):
    """Probes that ask guests whether they are ready and alive."""

    def verdict(self, vm: Mapping[str, Any], link: Link, address: str | None) -> Verdict:
        """Have the guest asked what its machine wants to know, and return what came of it so far."""
        ...

    def forget(self, is_alive: Callable[[str], bool]) -> None:
        """Ask no more in pods that are gone."""
        ...


class Disks(Protocol):
    """The disks that plugins set up: ``storage.adding.PluginDisks``."""

    async def add(self, vm: Mapping[str, Any], pod_uid: str) -> Mapping[str, Served]:
        """Have those of a pod set up whose guest does not run yet; return them by name. Raises DisksFault."""
        ...

    async def check(self, vm: Mapping[str, Any], pod_uid: str, silent: Collection[str]) -> DisksFault | None:
        """Return what is wrong with those of a guest that runs; the servers of ``silent`` ones do not answer."""
        ...

    def is_wrong(self, pod_uid: str) -> bool:
        """Return whether :meth:`check` has to be called again, because something was wrong."""
        ...

    def forget(self, is_alive: Callable[[str], bool]) -> None:
        """Drop what is known of pods that are gone."""
        ...


@dataclass(frozen=True, slots=True)
class Ports:
    """The world around the reconciler."""

    machines: Machines
    writer: Writer
    events: Events
    node: Node
    disks: Disks
    wiring: wiring.Wiring
    """Shared with the targets of migrations: what was set up for a guest that comes need not be set up again once it is here."""
    links: Links
    clock: Clock
    probes: Probes


def machine_of(
    vm: Mapping[str, Any],
    accelerator: messages.Accelerator,
    interfaces: Sequence[Interface],
    chosen: Chosen | None,
    served: Mapping[str, Served] = MappingProxyType({}),
) -> messages.Machine:
    """Return what the launcher needs to know of ``vm``.

    ``chosen``: the CPU that its guest has with KVM because it names none; ``served``: disks that plugins have set up in the pod, by name.
    """
    return messages.Machine(
        namespace=objects.namespace_of(vm),
        name=objects.name_of(vm),
        uid=objects.uid_of(vm),
        domain=plugin_disks.with_served(chosen_cpu.given(domain_of(vm), chosen if accelerator == "kvm" else None), served),
        accelerator=accelerator,
        interfaces=tuple(
            messages.Interface(each.name, each.mac, each.tap, each.model, each.lease, each.lease6, each.ipv4)
            for each in interfaces
            if each.tap or each.model
        ),
        grace_seconds=guest_plan.grace_seconds(vm),
        access_credentials=tuple(_credential(each) for each in access_credentials.of(vm["spec"])),
        domain_xml=vm["spec"].get("domainXML") or "",
    )


def _credential(given: access_credentials.Credential) -> messages.AccessCredential:
    methods: dict[str, messages.PropagationMethod] = {each: each for each in get_args(messages.PropagationMethod)}
    return messages.AccessCredential(methods[given.method], given.users)


class RunGuest:
    """The reconciler of virtual machines."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._wiring = ports.wiring
        self._accelerators: dict[str, messages.Accelerator] = {}
        """By uid of the pod: what its devices, which were given since this process began, let its guest run with."""
        self._agreed: dict[str, tuple[Object, Object]] = {}
        """By uid of the pod: (what the server made of our last write, what we had sent). A server that stores some value in another
        spelling must not be told again and again."""
        self._imported: set[str] = set()
        """Uids of pods whose images were imported, or are no concern of theirs."""
        self._starting: dict[str, Pending] = {}
        """By uid of the pod: the start that its launcher has not answered yet."""
        self._told: dict[str, tuple[int, int, int]] = {}
        """By uid of the pod: how many of its guest's reboots, and firings of its watchdog, were told, or are older than this process."""
        self._answered: dict[str, str] = {}
        """By uid of the pod whose guest stands still: the time of the request that was answered (``guest_plan.Observed``)."""
        self._writes: dict[Request, TokenBucket] = {}
        """Writes that are left to each machine of this node."""

    async def reconcile(self, request: Request) -> Result:
        """Bring the guest closer to what its virtual machine asks for."""
        who, before = Who("vm", request), None
        for _ in range(MAX_STEPS):
            vm = self._ports.machines.get(request.namespace, request.name)
            pod_uid = objects.dig(vm, "status", "podUID") or ""
            concerned = phases.phase_of(vm or {}) in phases.OWNED_BY_HANDLER | {phases.UNKNOWN}
            self._ports.links.release(who, keep=pod_uid if concerned else "")
            if vm is None:
                self._writes.pop(request, None)
            if vm is None or not pod_uid or not concerned:
                self._forget()
                return Result()
            link = self._ports.links.want(pod_uid, who)
            self._forget()  # only now: of a guest that has just come here, the target of its migration may want nothing any more
            if link.not_understood and not link.gone:
                return await self._not_understood(vm, link)
            observed = guest_plan.Observed(
                vm=vm,
                launcher=link.status,
                connected=link.connection is not None,
                gone=link.gone,
                starting=link.pod_uid in self._starting,
                answered=self._answered_of(vm, link),
            )
            action = guest_plan.plan(observed)
            if action == before:
                break  # the launcher did what it was asked to, and nothing came of it
            rest, before = await self._apply(vm, link, action), action
            if rest is not None:
                return rest
        logger.warning("virt-launcher of virtual machine %s and this process do not agree about its guest", request)
        return Result(requeue_after=DISAGREE_SECONDS)

    async def _not_understood(self, vm: Object, link: Link) -> Result:
        """Tell it, by condition and Event, once while it lasts; the guest goes on."""
        status = guest_status.not_understood(vm, link.not_understood, self._ports.clock.now())
        if await self._write(vm, status):
            found = objects.condition(status["conditions"], conditions.READY) or {}
            self._say(vm, "Warning", conditions.LAUNCHER_NOT_UNDERSTOOD, str(found.get("message")))
        return Result(requeue_after=NOT_UNDERSTOOD_SECONDS)

    async def _apply(self, vm: Object, link: Link, action: guest_plan.Action) -> Result | None:
        """Carry the action out; return when to look again, or None where there may be more to do at once."""
        match action:
            case guest_plan.Wait():
                return Result()
            case guest_plan.Start():
                return await self._start(vm, link, paused=action.paused)
            case guest_plan.Call():
                return await self._call(vm, link, action.request)
            case guest_plan.Report():
                return await self._report(vm, link)
            case guest_plan.Finish():
                await self._finish(vm, action.end)
            case _:
                assert_never(action)
        return Result()

    async def _start(self, vm: Object, link: Link, *, paused: bool) -> Result | None:
        try:
            return await self._begin(vm, link, paused=paused)
        except StorageHangs as error:
            await self._tell_disks(vm, conditions.DISK_NOT_ANSWERING, str(error))
            return Result(requeue_after=START_AGAIN_SECONDS)
        except ownership.NotTheDevice as error:
            await self._tell_disks(vm, conditions.DISK_NOT_USABLE, str(error))
            raise
        except DisksFault as wrong:
            return await self._not_set_up(vm, wrong)
        except Unsupported as error:
            await self._finish(vm, End(power.RESULT_FAILED, conditions.NETWORK_NOT_SUPPORTED, guest_status.printable(str(error))))
            return Result()
        except wiring.HEALING as error:
            await self._network_failed(vm, self._wiring.lasting(link.pod_uid, error))
            raise
        except Refused as refused:
            return await self._not_started(vm, refused)

    async def _begin(self, vm: Object, link: Link, *, paused: bool) -> Result | None:
        """Prepare the pod and have the guest started. Raises what is wrong with one of them."""
        connection = _live(link)
        accelerator = self._accelerators.get(link.pod_uid)  # a pod that waits for an image is asked again and again, and prepared once
        if accelerator is None:
            accelerator = self._accelerators[link.pod_uid] = await self._ports.node.give_devices(vm, link.pod_uid, connection)
        if (rest := await self._import(vm, link, connection, accelerator)) is not None:
            return rest  # before the pod's network becomes the guest's
        served = await self._ports.disks.add(vm, link.pod_uid)
        interfaces = await self._wiring.wire(vm, link.pod_uid, connection)
        if await self._is_network_found(vm):
            return Result(requeue_after=START_AGAIN_SECONDS)
        machine = machine_of(vm, accelerator, interfaces, chosen_cpu.chosen(vm), served)
        if not await self._sync(link, connection, machine, paused=paused):
            return Result(requeue_after=START_AGAIN_SECONDS)
        return None

    async def _tell_disks(self, vm: Object, reason: str, message: str) -> None:
        """Tell what keeps a guest from starting here, by condition and Event, once while it lasts."""
        status = guest_status.with_disks_fault(vm, vm.get("status") or {}, reason, message, self._ports.clock.now())
        if await self._write(vm, status):
            self._say(vm, "Warning", reason, guest_status.printable(message))

    async def _network_failed(self, vm: Object, fault: guest_status.NetworkFault | None) -> None:
        status = guest_status.with_network(vm, vm.get("status") or {}, fault, self._ports.clock.now())
        if fault is not None and await self._write(vm, status):
            self._say(vm, "Warning", fault.reason, guest_status.printable(fault.message))

    async def _not_set_up(self, vm: Object, fault: DisksFault) -> Result:
        """Tell what plugins of disks say, and wait as for any other storage; or end where they say that it cannot be."""
        message = guest_status.printable(str(fault))
        if fault.final:
            await self._finish(vm, End(power.RESULT_FAILED, conditions.DISK_NOT_SUPPORTED, message))
            return Result()
        if await self._write(vm, guest_status.waiting(vm, fault.reason, message, self._ports.clock.now())):
            self._say(vm, "Warning", fault.reason, message)
        return Result(requeue_after=fault.retry_seconds)

    async def _is_network_found(self, vm: Object) -> bool:
        """Write that no plugin of an interface is waited for any more: what is slow from now on is the start, and that has a limit."""
        if not conditions.waits_for_network_plugin(vm):
            return False
        return await self._write(vm, guest_status.with_network(vm, vm.get("status") or {}, None, self._ports.clock.now()))

    async def _import(self, vm: Object, link: Link, connection: Connection, accelerator: messages.Accelerator) -> Result | None:
        """Have images imported; return None once there is nothing to wait for."""
        if link.pod_uid in self._imported or not guest_imports.of(vm) or not connection.knows(messages.Import):
            return None
        now = self._ports.clock.now()
        try:
            await connection.call(messages.Import(machine_of(vm, accelerator, (), None)))
        except Refused as refused:
            if refused.reason != "NotReady":
                raise
            status = guest_imports.status_of(vm, refused.status, now)
            if await self._write(vm, status):
                for kind, reason, message in guest_imports.events(vm, status):
                    self._say(vm, kind, reason, message)
            return Result(requeue_after=guest_imports.SECONDS)
        self._imported.add(link.pod_uid)
        if guest_imports.are_told(vm):
            self._say(vm, "Normal", guest_imports.SUCCEEDED, "the images of all disks are there")
            await self._write(vm, guest_imports.without(guest_status.with_disks_found(vm, now)))
        return Result(requeue_after=START_AGAIN_SECONDS) if guest_imports.are_told(vm) else None

    async def _sync(self, link: Link, connection: Connection, machine: messages.Machine, *, paused: bool) -> bool:
        """Have the launcher start the guest; return whether it has answered.

        Nothing waits for its answer for long, because the machine may have to be off by then: a later pass takes it.
        """
        pending = self._starting.get(link.pod_uid)
        if pending is None or pending.connection is not connection:
            pending = self._starting[link.pod_uid] = connection.begin(messages.Sync(machine, paused=paused))
        try:
            answered = await pending.answered(within=START_PATIENCE_SECONDS)
        except (Refused, Disconnected):
            self._starting.pop(link.pod_uid, None)
            raise
        if answered:
            self._starting.pop(link.pod_uid, None)
        return answered

    async def _not_started(self, vm: Object, refused: Refused) -> Result:
        now = self._ports.clock.now()
        if refused.reason == "NotReady":
            waiting = guest_status.waiting_for_room(vm, str(refused), now) if refused.full else None
            waiting = waiting or guest_status.waiting_for_servers(vm, refused.disks, now)
            status = waiting or guest_status.waiting_for_images(vm, refused.disks, now)
            if await self._write(vm, status):
                found = objects.condition(status["conditions"], conditions.DISKS_READY) or {}
                if guest_status.is_news_of_disks(vm, status):
                    self._say(vm, "Warning", str(found.get("reason")), str(found.get("message")))
            return Result(requeue_after=IMAGE_SECONDS)
        if refused.reason == "Timeout":
            if conditions.waits_for_image(vm):  # not any more: what is slow now is the start, and that has a limit
                await self._write(vm, guest_status.with_disks_found(vm, now))
            raise refused
        ending = refused.status.ending
        end = guest_status.end_of(ending) if ending is not None else None
        message = guest_status.printable(str(refused))
        await self._finish(vm, end or End(power.RESULT_FAILED, "StartFailed", message))
        return Result()

    def _answered_of(self, vm: Object, link: Link) -> str:
        """Return which request is no reason any more to resume a guest that was stopped by a fault."""
        if not guest_plan.stands_still(link.status):
            self._answered.pop(link.pod_uid, None)
            return ""
        return self._answered.setdefault(link.pod_uid, guest_plan.answered_before(vm))

    async def _call(self, vm: Object, link: Link, request: messages.Shutdown | messages.Suspend | messages.Resume) -> Result | None:
        if isinstance(request, messages.Resume):
            self._answered[link.pod_uid] = str(objects.dig(vm, "status", "request", "time") or "")
        try:
            await _live(link).call(request)
        except Refused as refused:
            if refused.reason == "Conflict":  # the domain changed its state meanwhile: the status that says so is here or coming
                logger.debug("launcher refused %s: %s", type(request).__name__, refused)
                return Result()
            self._say(vm, "Warning", f"{type(request).__name__}Failed", guest_status.printable(str(refused)))
            if isinstance(request, messages.Resume) and refused.reason == "Failed":
                return None  # what stopped the guest does so still: it is asked for again by the next unpause
            raise
        match request:
            case messages.Shutdown():
                words = f"{guest_plan.why_down(vm)}; the guest has {request.grace_seconds:.0f} s to shut down"
                self._say(vm, "Normal", "ShuttingDown", words)
            case messages.Suspend():
                self._say(vm, "Normal", "Paused", "the guest was paused")
            case messages.Resume():
                self._say(vm, "Normal", "Unpaused", "the guest goes on")
        return None

    async def _report(self, vm: Object, link: Link) -> Result | None:
        connection, observed = link.connection, link.status
        if connection is None or observed is None:
            return Result()
        self._tell(vm, link.pod_uid, observed)
        if (fault := await self._wiring.make_sure(vm, link.pod_uid, connection)) is not None:
            self._say(vm, "Warning", fault.reason, guest_status.printable(fault.message))
        now, interfaces = self._ports.clock.now(), self._wiring.interfaces(link.pod_uid)
        verdict = self._ports.probes.verdict(vm, link, _address_of(interfaces))
        fault = fault or dhcp_faults.fault(observed) or passt_faults.fault(vm, observed)
        status = guest_status.with_network(vm, guest_status.running(vm, observed, interfaces, now, verdict), fault, now)
        if verdict.dead and not observed.stopping:
            return await self._end_dead(vm, guest_probes.ending(vm, status, verdict, now))
        status = dhcp_faults.with_restarts(vm, status, observed, now)
        wrong = await self._ports.disks.check(vm, link.pod_uid, observed.servers_silent)
        status = guest_status.with_disks_fault(vm, status, wrong.reason, str(wrong), now) if wrong is not None else status
        status = access_credentials_told(vm, status, observed, now)
        status = shared_filesystems.told(vm, status, observed, now)
        status, again = guest_words.told(vm, status, observed, now)
        # A fault of a program may be gone at the next look; whether it is has no event.
        heals = self._wiring.may_heal(link.pod_uid) or self._ports.disks.is_wrong(link.pod_uid)
        rest = Result(requeue_after=wiring.NETWORK_SECONDS if heals else again)
        if status == vm.get("status") or self._agreed.get(link.pod_uid) == (vm.get("status"), status):
            return rest
        if not await self._write(vm, status):
            return Result(requeue_after=self._bucket(vm).delay(_elapsed()))
        if failing := disk_faults.news(vm, status, wrong.reason if wrong is not None else ""):
            self._say(vm, "Warning", *failing)
        if why := guest_probes.became_unready(vm, status):
            self._say(vm, "Warning", conditions.NOT_PROBED, why)
        if (of_addresses := dhcp_faults.news(vm, status)) is not None:
            self._say(vm, "Warning", *of_addresses)
        if lost := shared_filesystems.loss(vm, status):
            self._say(vm, "Warning", conditions.FILESYSTEM_LOST, lost)
        if phases.phase_of(vm) == phases.SCHEDULED and not power.has_run(vm):  # it may be in that phase again by an edit of the status
            kind = "KVM" if observed.domain is not None and observed.domain.type == "kvm" else "emulation"
            self._say(vm, "Normal", "Started", f"the guest runs ({kind})")
        return rest

    async def _end_dead(self, vm: Object, status: Object) -> Result | None:
        """Write down why the guest has to end, before it is asked to: what is to be done follows from that."""
        if not await self._write(vm, status):
            return Result(requeue_after=self._bucket(vm).delay(_elapsed()))
        told = objects.condition(status["conditions"], conditions.READY) or {}
        self._say(vm, "Warning", conditions.LIVENESS_FAILED, str(told.get("message")))
        return None

    def _tell(self, vm: Object, pod_uid: str, observed: messages.Status) -> None:
        counts = (observed.reboots, observed.watchdogs, observed.passt_ends)
        reboots, watchdogs, passt_ends = self._told.setdefault(pod_uid, counts)
        if observed.watchdogs > watchdogs:
            self._say(vm, "Warning", guest_status.WATCHDOG_FIRED, "the guest's watchdog fired")
        if observed.reboots > reboots:
            self._say(vm, "Normal", "Rebooted", "the guest rebooted")
        if observed.passt_ends > passt_ends:
            self._say(vm, "Warning", passt_faults.PASST_ENDED, passt_faults.LOST)
        self._told[pod_uid] = counts

    def _forget(self) -> None:
        self._wiring.forget(self._ports.links.is_alive)
        self._ports.probes.forget(self._ports.links.is_alive)
        self._ports.disks.forget(self._ports.links.is_alive)
        self._accelerators = {uid: which for uid, which in self._accelerators.items() if self._ports.links.is_alive(uid)}
        self._starting = {uid: pending for uid, pending in self._starting.items() if self._ports.links.is_alive(uid)}
        self._told = {uid: counts for uid, counts in self._told.items() if self._ports.links.is_alive(uid)}
        self._answered = {uid: time for uid, time in self._answered.items() if self._ports.links.is_alive(uid)}
        self._imported = {uid for uid in self._imported if self._ports.links.is_alive(uid)}
        self._agreed = {uid: agreed for uid, agreed in self._agreed.items() if self._ports.links.is_alive(uid)}

    async def _finish(self, vm: Object, end: End) -> None:
        await self._write(vm, guest_status.ended(vm, end, self._ports.clock.now()))
        self._say(vm, "Warning" if end.result == power.RESULT_FAILED else "Normal", end.reason, end.message)

    async def _write(self, vm: Object, status: Object) -> bool:
        """Write the status if it is another one and its turn has come; return whether it was written.

        What does not change the phase waits for its turn: who calls this looks again later, and then writes the newest.
        """
        if status == vm.get("status"):
            return False
        bucket, now = self._bucket(vm), _elapsed()
        if bucket.delay(now) and status.get("phase") == phases.phase_of(vm):
            return False
        bucket.spend(now)
        written = await self._ports.writer.update(VIRTUAL_MACHINES, {**vm, "status": status}, subresource="status")
        self._ports.machines.remember(written)
        self._agreed[objects.dig(vm, "status", "podUID")] = (written.get("status") or {}, status)
        return True

    def _bucket(self, vm: Object) -> TokenBucket:
        request = objects.key_of(vm)
        if request not in self._writes:
            self._writes[request] = TokenBucket(WRITES_BURST, 1 / WRITE_SECONDS, _elapsed(), debt=WRITES_BURST)
        return self._writes[request]

    def _say(self, vm: Object, type_: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        self._ports.events.event(vm, VIRTUAL_MACHINES, type_, reason, message)


def _address_of(interfaces: Sequence[Interface] | None) -> str | None:
    """Return the address in the pod's network by which others reach the guest; empty where there is none.

    None: this process has not set up the pod's network yet. What the status has then may be a former pod's, and somebody else's by now.
    """
    if interfaces is None:
        return None
    return next((each.addresses[0] for each in interfaces if each.addresses and each.is_own), "")


def _live(link: Link) -> Connection:
    if link.connection is None:
        raise Disconnected(f"the launcher of pod {link.pod_uid} is not connected")
    return link.connection


def _elapsed() -> float:
    return asyncio.get_running_loop().time()
