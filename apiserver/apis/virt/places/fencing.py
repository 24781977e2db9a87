"""The statement on a Node that it is off: the taint ``out-of-service`` (KEP-2268) and annotations."""

from __future__ import annotations

import copy
from typing import Final

from apiserver.apis.meta.objects import Object, annotations_of
from apiserver.apis.virt.places import node_states

_BOOT: Final = "boot-"
_BY_PERSON: Final = "nodeshutdown"


def fenced(node: Object, by: str, now: str, *, until_restart: bool = False) -> Object:
    """Return a copy of the Node with the out-of-service taint, and who fenced it: ``by`` at ``now``, a time in RFC 3339.

    The taint names the Node's boot ID. ``until_restart`` asks for unfencing after the next start.
    """
    found = copy.deepcopy(node)
    taint = {
        "key": node_states.OFF_TAINT,
        "value": _value(node_states.boot_of(node), until_restart=until_restart),
        "effect": "NoExecute",
        "timeAdded": now,
    }
    found["spec"] = {**(found.get("spec") or {}), "taints": [*_others(found), taint]}
    found["metadata"]["annotations"] = {**annotations_of(found), node_states.FENCED_BY_ANNOTATION: f"{by} at {now}"}
    return found


def _value(boot: str, *, until_restart: bool) -> str:
    named = f"{_BOOT}{boot}" if until_restart else f"{_BY_PERSON}-{_BOOT}{boot}"
    return named if node_states.OFF_VALUE.fullmatch(named) else _BY_PERSON


def ended_boot(node: Object) -> str:
    """Return the boot ID that ended when a fence agent switched the node off, or ""."""
    values = (str(each.get("value") or "") for each in node_states.taints_of(node) if each.get("key") == node_states.OFF_TAINT)
    return next((each.removeprefix(_BOOT) for each in values if each.startswith(_BOOT)), "")


def unfenced(node: Object) -> Object:
    """Return a copy of the Node without out-of-service taints, and without the annotation of who fenced it."""
    found = copy.deepcopy(node)
    found["spec"] = {**(found.get("spec") or {}), "taints": _others(found)}
    kept = {key: value for key, value in annotations_of(found).items() if key != node_states.FENCED_BY_ANNOTATION}
    found["metadata"]["annotations"] = kept
    return found


def _others(node: Object) -> list[Object]:
    return [each for each in node_states.taints_of(node) if each.get("key") != node_states.OFF_TAINT]
