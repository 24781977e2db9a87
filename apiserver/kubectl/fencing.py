"""``kubectl virt fence NODE --off``: a person states that an unreachable node is off, and its machines start elsewhere.

See ``docs/decisions/life-cycle.md``.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from apiserver.apis.core.resources import EVENTS, LEASES, NODES, SELF_SUBJECT_REVIEWS
from apiserver.apis.meta import errors, times
from apiserver.apis.meta.objects import Object, dig, name_of, namespace_of
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.places import fencing, node_states
from apiserver.kubectl import fencing_plan as planning
from apiserver.kubectl import handler_leases, messages, node_list, verbs
from apiserver.kubectl.access import Access
from apiserver.kubectl.messages import Failure

WATCH_SECONDS: Final = 12.0
"""A kubelet and virt-handler renew every ten seconds."""
KUBELET_LEASES: Final = "kube-node-lease"
WITHOUT_OFF: Final = (
    "error: fence needs --off, your statement that the node is switched off; if it is on, guests run twice and destroy their disks"
)

Ask = Callable[[str], str]


async def fence(access: Access, node: str, ask: Ask | None, *, watch_seconds: float = WATCH_SECONDS) -> str:
    """Mark an unreachable node as off by the taint ``out-of-service``; return the line to print.

    ``ask`` asks the user to type the node's name; None: no question. Raises Failure, also if the node still reports.
    """
    found = await _unreachable_node(access, node)
    if node_states.is_fenced(found):
        return f"node/{node} is already fenced"
    before = await _leases(access, node)
    sys.stderr.write(f"watching the reports of node {node} for {watch_seconds:g} s\n")
    await asyncio.sleep(watch_seconds)
    _check_unreachable(node, before, await _leases(access, node))
    sys.stderr.write(f"{planning.question(node, await _machines(access, node))}\n")
    if ask is not None and ask("To confirm, type the name of the node: ").strip() != node:
        raise Failure("error: the typed name is another; nothing was changed")
    found = await _unreachable_node(access, node)
    _check_unreachable(node, before, await _leases(access, node))
    user, now = await _user(access), times.to_rfc3339(datetime.now(UTC))
    await _write(access, fencing.fenced(found, user, now), f"fence node {node}")
    await _tell(access, planning.event(found, "NodeFenced", f"{user} states that the node is off", now))
    return f"node/{node} fenced; once it is repaired: kubectl virt unfence {node}"


async def _machines(access: Access, node: str) -> list[str] | None:
    if (found := await node_list.machines(access)) is None:
        return None
    return [f"{namespace_of(each)}/{name_of(each)}" for each in found if dig_vm(each, "status", "nodeName") == node]


async def unfence(access: Access, node: str) -> str:
    """Remove a fenced node's taint; return the line to print. Raises Failure."""
    found = await _node(access, node)
    if found is None:
        raise Failure(f"error: node {node} not found")
    if not node_states.has_off_taint(found):
        return f"node/{node} is not fenced"
    user, now = await _user(access), times.to_rfc3339(datetime.now(UTC))
    await _write(access, fencing.unfenced(found), f"unfence node {node}")
    await _tell(access, planning.event(found, "NodeUnfenced", f"{user} states that the node is repaired", now))
    return f"node/{node} is no longer fenced"


async def _unreachable_node(access: Access, node: str) -> Object:
    found = await _node(access, node)
    if (problem := planning.refusal(found, node)) or found is None:
        raise Failure(f"error: {problem}")
    return found


async def _node(access: Access, node: str) -> Object | None:
    return await _get(access, _path(node), f"get node {node}")


def _path(node: str) -> str:
    try:
        return NODES.path(name=node)
    except errors.BadRequest as error:
        raise Failure(f"error: {error}") from error


async def _get(access: Access, path: str, doing: str) -> Object | None:
    try:
        return await verbs.answered(access, "GET", path, doing)
    except errors.NotFound:
        return None
    except errors.StatusError as error:
        raise messages.of_status(error, doing) from error


async def _leases(access: Access, node: str) -> dict[str, Object]:
    """Return the Leases of the node's kubelet and virt-handler, by namespace and name."""
    kubelet = await _get(access, LEASES.path(KUBELET_LEASES, node), f"get the lease of node {node}")
    found = [*([] if kubelet is None else [kubelet]), *await handler_leases.of_node(access, node)]
    return {f"{namespace_of(each)}/{name_of(each)}": each for each in found}


def _check_unreachable(node: str, before: dict[str, Object], after: dict[str, Object]) -> None:
    if lease := planning.renewed(before, after):
        raise Failure(f"error: Lease {lease} was renewed just now, so node {node} is on")


async def _user(access: Access) -> str:
    review = {"apiVersion": SELF_SUBJECT_REVIEWS.api_version, "kind": SELF_SUBJECT_REVIEWS.kind, "metadata": {}}
    found = await verbs.request(access, "POST", SELF_SUBJECT_REVIEWS.path(), "get the name of your user", body=review)
    return messages.said(str(dig(found, "status", "userInfo", "username") or "unknown"))


async def _write(access: Access, node: Object, doing: str) -> None:
    try:
        await verbs.answered(access, "PUT", _path(name_of(node)), doing, body=node)
    except errors.Conflict as error:
        raise Failure(f"error: node {name_of(node)} changed meanwhile; nothing was written: try again") from error
    except errors.StatusError as error:
        raise messages.of_status(error, doing) from error


async def _tell(access: Access, event: Object) -> None:
    """Create an Event; only warn if that fails, because the Node and the audit log also name the user."""
    try:
        await verbs.request(access, "POST", EVENTS.path("default"), "create an Event about the node", body=event)
    except Failure as failure:
        sys.stderr.write(f"Warning: {failure}\n")
