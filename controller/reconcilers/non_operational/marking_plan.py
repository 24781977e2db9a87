"""Decides the condition and the taint of a node where guests do not start. Pure.

A node on trial has no taint, because a start must reach it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from apiserver.apis.meta import times
from apiserver.apis.meta.objects import Object, condition, dig, name_of, uid_of
from apiserver.apis.virt.lifecycle.failed_starts import Verdict
from apiserver.apis.virt.places import node_states
from controller.reconcilers.nodes.node_reports import Census
from controller.reconcilers.settings import TaintEffect

LOOK_SECONDS: Final = 10.0
"""For changes that cause no event: time, and other nodes."""
FAILED: Final = "StartsFailed"
TRIAL: Final = "Trial"
OPERATIONAL: Final = "Operational"
MANY: Final = "MostNodesFail"
NAMESPACES: Final = 2
"""Least number of namespaces of the machines that failed, so no user of one namespace causes the taint."""
_UNTAINTED: Final = "; it is not tainted, because most nodes with virt-handler are non-operational"
_OF_ONE: Final = "; it is not tainted, because these machines are in one namespace"
_SHARED: Final = "; starts do not avoid it, because they fail on most nodes"
_CLEARED: Final = "starts do not avoid the node"


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What failed starts say about all nodes."""

    suspects: frozenset[str]
    """Nodes with a failed start that counts against them."""
    by_node: Mapping[str, Verdict]
    are_too_many: bool
    """Starts fail on most nodes, so they avoid none."""


@dataclass(frozen=True, slots=True)
class Observed:
    """What :func:`plan` decides from: a Node, its Verdict, and how many nodes are avoided."""

    node: Object
    verdict: Verdict | None
    """None: the node is operational."""
    is_one_of_many: bool
    """Starts fail on most nodes, so they avoid none."""
    avoided: int
    """Non-operational nodes, this one included, without those on trial."""
    nodes: int
    """Nodes where virt-handler reports."""
    effect: TaintEffect
    now: datetime
    is_suspect: bool
    """A failed start counts against the node."""


@dataclass(frozen=True, slots=True)
class SetCondition:
    """Write the condition ``KubevirtNonOperational``."""

    status: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class SetTaint:
    """Set the taint of non-operational nodes, with this effect; None: remove it."""

    effect: TaintEffect | None


Action: TypeAlias = SetCondition | SetTaint


def observe(node: Object, found: Verdicts, census: Census, effect: TaintEffect, now: datetime) -> Observed:
    """Return what :func:`plan` decides from."""
    return Observed(
        node=node,
        verdict=found.by_node.get(name_of(node)),
        is_one_of_many=found.are_too_many,
        avoided=sum(1 for each in found.by_node.values() if not each.is_on_trial(now)),
        nodes=census.reporting,
        effect=effect,
        now=now,
        is_suspect=name_of(node) in found.suspects,
    )


def plan(seen: Observed) -> tuple[Action, ...]:
    """Return the changes of the Node: the condition is set before the taint, and cleared after its removal."""
    is_avoided = seen.verdict is not None and not seen.is_one_of_many and not seen.verdict.is_on_trial(seen.now)
    effect = seen.effect if is_avoided and not _objection(seen) else None
    taint = () if effects_of(seen.node) == ([] if effect is None else [effect]) else (SetTaint(effect),)
    told = tuple(each for each in _conditions(seen) if each != _told(seen.node))
    return (*told, *taint) if is_avoided else (*taint, *told)


def next_look(seen: Observed) -> float | None:
    """Return the seconds until the next decision without an event; None if it waits for one."""
    if seen.verdict is None:
        return LOOK_SECONDS if seen.is_suspect or is_marked(seen.node) else None
    left = (seen.verdict.until - seen.now).total_seconds()
    return min(left, LOOK_SECONDS) if left > 0 else LOOK_SECONDS


def is_marked(node: Object) -> bool:
    """Return whether the Node has our taint, or our condition with another status than False."""
    told = _told(node)
    return bool(effects_of(node)) or (told is not None and told.status != "False")


def effects_of(node: Object) -> list[str]:
    """Return the effects of our taint on the Node."""
    return [str(each.get("effect")) for each in node_states.taints_of(node) if each.get("key") == node_states.NON_OPERATIONAL_TAINT]


def with_taint(node: Object, effect: TaintEffect | None) -> Object:
    """Return a copy of the Node with this effect of our taint, or without the taint. Other taints stay."""
    found = copy.deepcopy(node)
    others = [each for each in node_states.taints_of(found) if each.get("key") != node_states.NON_OPERATIONAL_TAINT]
    ours = [] if effect is None else [{"key": node_states.NON_OPERATIONAL_TAINT, "effect": effect}]
    found["spec"] = {**(found.get("spec") or {}), "taints": [*others, *ours]}
    return found


def status_patch(node: Object, told: SetCondition, now: datetime) -> Object:
    """Return the strategic merge patch that writes our condition, for this Node's uid only."""
    at, before = times.to_rfc3339(now), _told(node)
    changed = {"lastTransitionTime": at} if before is None or before.status != told.status else {}
    written = {"status": told.status, "reason": told.reason, "message": told.message, "lastHeartbeatTime": at, **changed}
    return {
        "metadata": {"uid": uid_of(node)},
        "status": {"conditions": [{"type": node_states.NON_OPERATIONAL_CONDITION, **written}]},
    }


def _objection(seen: Observed) -> str:
    """Return why starts avoid the node without a taint; empty if it has one."""
    if seen.avoided * 2 > seen.nodes:
        return _UNTAINTED
    return "" if seen.verdict is None or seen.verdict.namespaces >= NAMESPACES else _OF_ONE


def _conditions(seen: Observed) -> tuple[SetCondition, ...]:
    if seen.verdict is None:
        return () if _told(seen.node) is None else (SetCondition("False", OPERATIONAL, _CLEARED),)
    if seen.is_one_of_many:
        return (SetCondition("Unknown", MANY, f"{seen.verdict.evidence()}{_SHARED}"),)
    message = seen.verdict.message()
    if seen.verdict.is_on_trial(seen.now):
        return (SetCondition("False", TRIAL, message),)
    return (SetCondition("True", FAILED, f"{message}{_objection(seen)}"),)


def _told(node: Object) -> SetCondition | None:
    found = condition(dig(node, "status", "conditions"), node_states.NON_OPERATIONAL_CONDITION)
    return None if found is None else SetCondition(*(str(found.get(each) or "") for each in ("status", "reason", "message")))
