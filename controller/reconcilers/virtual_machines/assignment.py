"""The assignment of a machine to virt-handler of the node that runs its pod. Pure."""

from __future__ import annotations

from apiserver.apis.meta import times
from apiserver.apis.meta.objects import Object, generation_of, name_of, uid_of, with_condition, without_condition
from apiserver.apis.virt.lifecycle import conditions, phases, power
from controller.reconcilers.actions import Action, Emit, Requeue, WriteStatus
from controller.reconcilers.pods import pod_state
from controller.reconcilers.virtual_machines import attempts, start_rules, statuses
from controller.reconcilers.virtual_machines.observed import Observed
from controller.reconcilers.virtual_machines.statuses import Obstacle

_OF_A_POD = frozenset({conditions.Wait.SOURCE, conditions.Wait.STORAGE, conditions.Wait.VOLUME})
"""Over once the pod runs."""


def assign(seen: Observed, pod: Object) -> tuple[Action, ...]:
    """Return actions that set phase Scheduled, node and pod for virt-handler, or report that another machine uses the storage."""
    if seen.claims_in_use or seen.servers_in_use or seen.files_in_use:
        # Another machine started in the same moment and came first; and the node's files are known only now.
        return statuses.wait(seen, Obstacle(conditions.DISKS_READY, conditions.DISK_IN_USE, start_rules.in_use(seen), phase=""))
    node = pod_state.node_of(pod)
    status = {
        **phases.enter(statuses.status_of(seen), phases.SCHEDULED, seen.now),
        "nodeName": node,
        "podName": name_of(pod),
        "podUID": uid_of(pod),
        "podIP": next(iter(pod_state.addresses_of(pod)), ""),
        "conditions": _conditions(seen, node),
        "attempts": attempts.changed(seen.vm, power.current_attempt(seen.vm), {"nodeName": node}),
        "observedGeneration": generation_of(seen.vm),
    }
    is_told = power.newest_attempt(seen.vm).get("nodeName") == node  # a user edited the status since
    event = () if is_told else (Emit("Normal", "Scheduled", f"pod {name_of(pod)} runs on node {node}"),)
    return (WriteStatus(status), *event, Requeue(attempts.start_seconds(seen.vm)))


def _conditions(seen: Observed, node: str) -> list[Object]:
    waits = conditions.waits_for(seen.vm)
    found = statuses.ready(seen, "False", "GuestNotStarted", f"the pod runs on {node}; virt-handler is starting the guest")
    if waits & _OF_A_POD:
        found = with_condition(found, statuses.disks_ready(seen), now=times.to_rfc3339(seen.now))
    if conditions.Wait.NETWORK in waits:
        found = without_condition(found, conditions.NETWORK_READY)
    return found
