"""``kubectl virt nodes``: the nodes, as far as virtual machines depend on them."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, TypeAlias

from apiserver.apis.core.resources import NODES
from apiserver.apis.meta import times
from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.objects import Object, annotations_of, condition, dig, labels_of, name_of, namespace_of
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import failed_starts
from apiserver.apis.virt.places import names, node_states
from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from apiserver.kubectl import guestinfo, handler_leases, listing
from apiserver.kubectl.access import Access
from apiserver.kubectl.messages import Failure

COMMAND: Final = "nodes"
TITLES: Final = ("NAME", "STATE", "MACHINES", "ACCELERATION", "CPU", "REASON")
HOLD_SECONDS: Final = 40
"""Without a Lease's duration."""
MAX_REASON: Final = 300


Row: TypeAlias = Sequence[str | None]


class State(NamedTuple):
    """A node's state for virtual machines, such as ``Ready`` or ``Off``, and its reason."""

    word: str
    reason: str = ""


def state_of(node: Object, lease: Object | None, now: datetime, avoided: failed_starts.Verdict | None = None) -> State:
    """Return a node's State, with its reason.

    ``lease``: virt-handler's, compared with the time ``now``; ``avoided``: why starts avoid the node.
    """
    handled = lease is not None and _is_valid(lease, now)
    if node_states.kubelet_is_unreachable(node):
        return _unreachable(node, handled=handled)
    ready = condition(dig(node, "status", "conditions"), "Ready") or {}
    if ready.get("status") != "True":
        return State("NotReady", one_line(str(ready.get("message") or ""), MAX_REASON))
    if node_states.has_off_taint(node):
        return State("Fenced", f"it reports; kubectl virt unfence {name_of(node)} lets pods run there again")
    if lease is None:
        return State("NoHandler", "virt-handler does not run there")
    if not handled:
        return State("NoHandler", f"virt-handler has not reported since {one_line(str(dig(lease, 'spec', 'renewTime')), MAX_REASON)}")
    if node_states.is_being_emptied(node):
        return State("Draining", "cordoned, or tainted by an autoscaler")
    if avoided is None:
        return State("Ready")
    return State("Trial" if avoided.is_on_trial(now) else "NonOperational", avoided.message())


def _unreachable(node: Object, *, handled: bool) -> State:
    if handled:
        return State("Unreachable", "the kubelet does not report, virt-handler does, so the node is on")
    if node_states.is_fenced(node):
        by = annotations_of(node).get(node_states.FENCED_BY_ANNOTATION) or f"taint {node_states.OFF_TAINT}"
        return State("Off", one_line(f"fenced: {by}", MAX_REASON))
    return State("Unreachable", f"kubelet and virt-handler do not report; if it is off: kubectl virt fence {name_of(node)} --off")


def _is_valid(lease: Object, now: datetime) -> bool:
    try:
        renewed = times.parse(str(dig(lease, "spec", "renewTime")))
        holds = timedelta(seconds=float(dig(lease, "spec", "leaseDurationSeconds") or HOLD_SECONDS))
    except (ValueError, TypeError, OverflowError):
        return False
    return now - renewed < holds


def rows(nodes: Iterable[Object], leases: Mapping[str, Object], machines: Sequence[Object] | None, now: datetime) -> list[Row]:
    """Return a Row per node, sorted by name. ``leases``: virt-handlers', by Lease name; ``machines``: None if unknown."""
    by_name = {name_of(each): each for each in nodes}
    counts = Counter(str(dig_vm(each, "status", "nodeName") or "") for each in machines or ())
    tried: dict[str, list[Object]] = {}
    for vm in machines or ():
        for name in failed_starts.tried_nodes(vm):
            tried.setdefault(name, []).append(vm)
    avoided = failed_starts.non_operational(by_name, tried, now)
    found = []
    for name, node in sorted(by_name.items()):
        lease = leases.get(names.handler_lease(name))
        found.append(_row(node, lease, str(counts[name]) if machines is not None else None, state_of(node, lease, now, avoided.get(name))))
    return found


def _row(node: Object, lease: Object | None, machines: str | None, state: State) -> Row:
    acceleration = annotations_of(lease or {}).get(node_states.ACCELERATION_ANNOTATION, "").partition(":")[0]
    models = [each.removeprefix(names.HOST_MODEL_LABELS) for each in labels_of(node) if each.startswith(names.HOST_MODEL_LABELS)]
    return (name_of(node), state.word, machines, one_line(acceleration, 20), ",".join(sorted(models)), state.reason)


def _kept(vm: Object) -> Object:
    return {
        "metadata": {"namespace": namespace_of(vm), "name": name_of(vm)},
        "status": {"nodeName": dig_vm(vm, "status", "nodeName"), "attempts": dig_vm(vm, "status", "attempts")},
    }


async def show(access: Access, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> str:
    """Return the table of nodes.

    Raises:
        Failure: refused or unanswered.
    """
    nodes = [each async for each in listing.listed(access, NODES.path(), "list nodes")]
    leases = await handler_leases.by_name(access)
    return "\n".join(guestinfo.aligned([TITLES, *rows(nodes, leases, await machines(access), now())]))


async def machines(access: Access) -> list[Object] | None:
    """Return all virtual machines, reduced to name, node and attempts; None, with a printed warning, if refused or unanswered."""
    listed = listing.listed(access, VIRTUAL_MACHINES.path(), "list the virtual machines of all namespaces")
    try:
        return [_kept(each) async for each in listed]
    except Failure as failure:
        sys.stderr.write(f"Warning: {failure}\n")
        return None
