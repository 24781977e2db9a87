"""An attempt's start: its pod, and what the status says of it. Pure."""

from __future__ import annotations

import dataclasses

from apiserver.apis.meta import times
from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.objects import Object, generation_of, name_of, new_condition, with_condition, without_condition
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import conditions, managed_save, node_loss, phases, power
from apiserver.apis.virt.spec import chosen_cpu
from controller.reconcilers import disk_claims
from controller.reconcilers.actions import Action, CreatePod, Emit, WriteStatus
from controller.reconcilers.launcher_pods import cpu, launcher_pod, scheduling
from controller.reconcilers.nodes import baseline_cpu
from controller.reconcilers.pods import pod_state
from controller.reconcilers.virtual_machines import attempts, disk_sizes, statuses
from controller.reconcilers.virtual_machines.observed import Observed
from controller.reconcilers.virtual_machines.statuses import Obstacle


def begin(seen: Observed, decision: power.Power) -> tuple[Action, ...]:
    """Return actions that create and record the wanted attempt's pod, or report its refusal. The name prevents a second pod."""
    kvm = seen.settings.wants_kvm(offered=seen.kvm_offered)
    placement = scheduling.Placement(
        kvm=kvm,
        avoid_nodes=_avoided(seen),
        never_on=scheduling.never_on(seen.vm, seen.incompatible, seen.fenced),
        only_on=cpu.only_node(seen.vm),
        node_selector=power.node_selector(seen.vm, decision.attempt),
    )
    resumes = managed_save.of(seen.vm) is not None
    choice = None if resumes else _choose_cpu(seen, placement)
    chosen = chosen_cpu.chosen(seen.vm) if resumes else choice.chosen if choice is not None else None
    placement = dataclasses.replace(placement, chosen=chosen)
    pod = launcher_pod.launcher_pod(seen.vm, decision.attempt, seen.claims, seen.settings, placement)
    if seen.refusal:
        why = f"; the pod requests {launcher_pod.memory_of(seen.vm, pod)}" if "memory" in seen.refusal else ""
        return statuses.wait(seen, Obstacle(conditions.READY, "FailedCreate", f"{seen.refusal}{why}"))
    return (CreatePod(pod, seen.vm), *_record_start(seen, pod, decision.attempt, choice))


def _avoided(seen: Observed) -> tuple[str, ...]:
    rejecting = (pod_state.node_of(pod) for pod in seen.pods if pod_state.lacked_devices(pod))
    return tuple(sorted({*attempts.failed_nodes(seen.vm), *rejecting, *(seen.non_operational.keys() - seen.trials)}))


def _choose_cpu(seen: Observed, placement: scheduling.Placement) -> baseline_cpu.Choice | None:
    """Return the CPU chosen for this attempt's guest; None without KVM, or if virt-controller must not choose."""
    if not placement.kvm or not chosen_cpu.is_to_choose(seen.vm):
        return None
    wanted = (str(each.get("name") or "") for each in dig_vm(seen.vm, "spec", "domain", "cpu", "features") or ())
    never_on = frozenset(placement.never_on)
    nodes = [each for each in seen.nodes if name_of(each) not in never_on] if never_on else seen.nodes
    placement = dataclasses.replace(placement, never_on=())  # during an upgrade these can be all nodes
    return baseline_cpu.choose(nodes, scheduling.scheduling(seen.vm, placement), wanted)


def _record_start(seen: Observed, pod: Object, attempt: int, choice: baseline_cpu.Choice | None) -> tuple[Action, ...]:
    begun = {"number": attempt, "generation": generation_of(seen.vm), "podName": name_of(pod), "startTime": times.to_rfc3339(seen.now)}
    status = {
        **phases.enter(statuses.status_of(seen), phases.SCHEDULING, seen.now),
        "attempt": attempt,
        "podName": name_of(pod),
        "conditions": _conditions(seen, pod),
        "attempts": [*(dig_vm(seen.vm, "status", "attempts") or []), begun][-power.MAX_ATTEMPTS_KEPT :],
        "observedGeneration": generation_of(seen.vm),
    }
    for key in phases.OF_A_PLACE if managed_save.of(seen.vm) else (*phases.OF_A_PLACE, "cpu"):  # the last attempt left them
        status.pop(key, None)
    if choice is not None:
        status["cpu"] = choice.status()
    made = Emit("Normal", "SuccessfulCreate", f"created pod {name_of(pod)} for attempt {attempt}: {launcher_pod.memory_of(seen.vm, pod)}")
    return (WriteStatus(status, "podUID"), made, *_warn_of_namesakes(seen), *disk_sizes.warnings(seen))


def _conditions(seen: Observed, pod: Object) -> list[Object]:
    now = times.to_rfc3339(seen.now)
    found = statuses.ready(seen, "False", "PodNotRunning", f"pod {name_of(pod)} was created")
    found = with_condition(found, statuses.disks_ready(seen), now=now)
    for kind in (conditions.DISRUPTION_TARGET, conditions.MIGRATABLE):
        found = without_condition(found, kind)
    found = _restarted(seen, found)
    if barrier := disk_claims.not_migratable(seen.vm, seen.claims):
        new = new_condition(seen.vm, conditions.MIGRATABLE, "False", conditions.DISKS_NOT_SHARED, barrier)
        found = with_condition(found, new, now=now)
    if conditions.Wait.NETWORK in conditions.waits_for(seen.vm):
        found = without_condition(found, conditions.NETWORK_READY)
    return found


def _restarted(seen: Observed, found: list[Object]) -> list[Object]:
    """Return conditions ``found`` with NodeLost=False if a loss preceded this start, else without NodeLost."""
    if not node_loss.is_lost(seen.vm):
        return without_condition(found, conditions.NODE_LOST)
    message = "a new attempt began after the loss of a node"
    new = new_condition(seen.vm, conditions.NODE_LOST, "False", node_loss.RESTARTED, message)
    return with_condition(found, new, now=times.to_rfc3339(seen.now))


def _warn_of_namesakes(seen: Observed) -> tuple[Action, ...]:
    return (duplicate_mac(seen.namesakes),) if seen.namesakes else ()


def duplicate_mac(namesakes: tuple[str, ...]) -> Emit:
    """Return the warning of other machines with a MAC address of this one."""
    others = one_line(", ".join(namesakes), pod_state.MAX_MESSAGE)
    message = (
        f"a MAC address of this machine is also used by {others}: harmless for the pod network, but software that identifies "
        "guests by MAC address may confuse them"
    )
    return Emit("Warning", "DuplicateMAC", message)
