"""Decisions of ``kubectl virt fence`` and ``unfence``. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from apiserver.apis.core.resources import EVENTS, NODES
from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.objects import Object, condition, dig, name_of, object_reference
from apiserver.apis.virt.places import names, node_states

LISTED: Final = 10
"""Machines in the question."""
_WARNING: Final = (
    "If the node is on, its guests run twice and destroy their disks. A network that is down does not prove that it is off; its power "
    "supply, hypervisor or management board does."
)


def refusal(node: Object | None, name: str) -> str:
    """Return why the node cannot be fenced; empty if it can."""
    if node is None:
        return f"node {name} not found: check the name with kubectl virt nodes; a Node that was deleted counts as off already"
    if node_states.kubelet_is_unreachable(node):
        return ""
    ready = one_line(str((condition(dig(node, "status", "conditions"), "Ready") or {}).get("status")), 20)
    return f"the kubelet of node {name} reports (Ready is {ready}), so the node is on; if you switched it off just now, wait a minute"


def renewed(before: Mapping[str, Object], after: Mapping[str, Object]) -> str:
    """Return the key of a Lease with another renewal in ``after`` than in ``before``, or in only one of them; else empty."""
    return next((each for each in {**before, **after} if _time(before.get(each)) != _time(after.get(each))), "")


def _time(lease: Object | None) -> object:
    return dig(lease, "spec", "renewTime")


def question(node: str, machines: Sequence[str] | None) -> str:
    """Return the text that states what fencing does, for confirmation; ``machines`` is None if unknown."""
    return f"{_what_follows(node)} {_there(machines)}\n{_WARNING}"


def _what_follows(node: str) -> str:
    return (
        f"You state that node {node} is off. Kubernetes then deletes its pods and detaches their volumes, and its machines start elsewhere."
    )


def _there(machines: Sequence[str] | None) -> str:
    if machines is None:
        return "Its virtual machines are unknown."
    shown = [*machines[:LISTED], *([f"and {len(machines) - LISTED} more"] if len(machines) > LISTED else [])]
    named = f": {', '.join(shown)}" if shown else ""
    return f"It had {len(machines)} virtual machines{named}."


def event(node: Object, reason: str, message: str, now: str) -> Object:
    """Return an Event about the Node, in namespace ``default`` as for all Nodes."""
    return {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        "metadata": {"generateName": f"{name_of(node)[:200]}.", "namespace": "default"},
        "involvedObject": object_reference(node, NODES),
        "type": "Warning" if reason == "NodeFenced" else "Normal",
        "reason": reason,
        "message": message,
        "source": {"component": f"kubectl-virt.{names.GROUP}"},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
