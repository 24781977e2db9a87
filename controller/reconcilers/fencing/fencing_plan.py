"""Decides whether a node is fenced or unfenced. Pure.

An unreachable node proves nothing about a guest, so it is only the reason to ask the fence agent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from apiserver.apis.meta.objects import Object, condition, name_of
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import conditions, node_loss, phases, power
from apiserver.apis.virt.places import fencing, node_states

LOOK_SECONDS: Final = 10.0
"""For changes that cause no event of the node."""


@dataclass(frozen=True, slots=True)
class Nothing:
    """Do nothing until the node changes."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Look again after these seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Refuse:
    """Do not fence, although machines wait for it."""

    message: str


@dataclass(frozen=True, slots=True)
class Fence:
    """Ask the agent to switch the node off."""


@dataclass(frozen=True, slots=True)
class Unfence:
    """Remove the fencing: the node has started again."""


Decision: TypeAlias = Nothing | Wait | Refuse | Fence | Unfence


@dataclass(frozen=True, slots=True)
class Observed:
    """The input of :func:`plan` about a node; ``reports_for`` 0: it is unreachable, None: its kubelet reports."""

    node: Object
    reports_for: float | None
    """Seconds until virt-handler's last report expires."""
    unreachable_for: float
    """Seconds since this process noticed that the node is unreachable."""
    waiting: int
    """Machines on the node that restart elsewhere once it is fenced."""
    unreachable: int
    """Unreachable nodes that had a virt-handler and are not fenced, this one included."""
    nodes: int
    """These, and those where virt-handler reports."""
    delay: float
    """Minimum for ``unreachable_for``."""


def plan(seen: Observed) -> Decision:
    """Return Fence, Unfence, Refuse, Wait or Nothing for the node."""
    if has_restarted(seen.node):
        return Unfence()
    if node_states.is_fenced(seen.node):
        return Nothing()
    if seen.reports_for is None:
        return Nothing()
    if seen.reports_for:
        return Wait(seen.reports_for)
    if not seen.waiting:
        return Wait(LOOK_SECONDS)
    if seen.unreachable * 2 > seen.nodes:
        return Refuse(_too_many(seen))
    if seen.unreachable_for < seen.delay:
        return Wait(seen.delay - seen.unreachable_for)
    return Fence()


def is_of_interest(node: Object, waiting: int) -> bool:
    """Return whether the node is fenced, or its kubelet is unreachable and machines wait."""
    return node_states.has_off_taint(node) or bool(node_states.kubelet_is_unreachable(node) and waiting)


def has_restarted(node: Object) -> bool:
    """Return whether a node that virt-controller fenced reports again, with another boot ID."""
    before, now = fencing.ended_boot(node), node_states.boot_of(node)
    return bool(before and now and before != now) and not node_states.kubelet_is_unreachable(node)


def contradiction(before: Object, after: Object) -> str:
    """Return a message if the kubelet reports, and ``after``, the Node read after the agent's call, has the boot ID of ``before``."""
    if node_states.kubelet_is_unreachable(after) or node_states.boot_of(after) != node_states.boot_of(before):
        return ""
    return "it says that the node was off, but the kubelet reports with the same boot ID: correct the agent's data about this node"


def restarts_elsewhere(vm: Object, node: str) -> bool:
    """Return whether the machine's pod or disk is on the node, and the machine restarts elsewhere once the node is fenced."""
    is_there = dig_vm(vm, "status", "nodeName") == node and bool(dig_vm(vm, "status", "podUID"))
    return (is_there or _may_wait_for_disks(vm, node)) and dig_vm(vm, "spec", "onNodeLoss") != node_loss.WAIT and power.decide(vm).on


def _may_wait_for_disks(vm: Object, node: str) -> bool:
    """Return whether the machine was lost with the node and has no guest since. After a seal, its disks may still be attached there."""
    if condition(dig_vm(vm, "status", "conditions"), conditions.NODE_LOST) is None or phases.phase_of(vm) in phases.WITH_GUEST:
        return False
    ended = [each for each in dig_vm(vm, "status", "attempts") or () if power.has_ended(each)]
    return bool(ended) and ended[-1].get("nodeName") == node


def count_waiting(machines: Iterable[Object], node: str) -> int:
    """Return how many of the machines have their pod on the node, and restart elsewhere once it is fenced."""
    return sum(1 for vm in machines if restarts_elsewhere(vm, node))


def _too_many(seen: Observed) -> str:
    node = name_of(seen.node)
    return (
        f"{seen.unreachable} of {seen.nodes} nodes with virt-handler do not report, which looks like a fault of the network or of "
        f"kube-apiserver, so no node is fenced. If you are certain that the node is off: kubectl virt fence {node} --off"
    )
