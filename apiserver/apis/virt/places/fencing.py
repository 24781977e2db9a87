"""The statement on a Node that it is off, as Kubernetes' taint ``out-of-service`` (KEP-2268) and annotations. Pure."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Final

from apiserver.apis.meta.objects import Object, annotations_of
from apiserver.apis.virt.places import names, node_states

TAINT: Final[Mapping[str, str]] = {"key": node_states.OFF_TAINT, "value": "nodeshutdown", "effect": "NoExecute"}
FENCED_BOOT_ANNOTATION: Final = f"{names.GROUP}/fenced-boot-id"
"""On a Node that virt-controller fenced: its boot ID before. A node that reports with another one has started again."""
_ANNOTATIONS: Final = frozenset({node_states.FENCED_BY_ANNOTATION, FENCED_BOOT_ANNOTATION})


def fenced(node: Object, by: str, now: str, boot: str = "") -> Object:
    """Return the Node with the taint, who fenced it, and the boot ID if it is to be unfenced after its next start."""
    found = copy.deepcopy(node)
    found["spec"] = {**(found.get("spec") or {}), "taints": [*_others(found), {**TAINT, "timeAdded": now}]}
    who = {node_states.FENCED_BY_ANNOTATION: f"{by} at {now}", **({FENCED_BOOT_ANNOTATION: boot} if boot else {})}
    found["metadata"]["annotations"] = {**annotations_of(found), **who}
    return found


def unfenced(node: Object) -> Object:
    """Return the Node without what ``fenced`` adds."""
    found = copy.deepcopy(node)
    found["spec"] = {**(found.get("spec") or {}), "taints": _others(found)}
    found["metadata"]["annotations"] = {key: value for key, value in annotations_of(found).items() if key not in _ANNOTATIONS}
    return found


def _others(node: Object) -> list[Object]:
    return [each for each in node_states.taints_of(node) if each.get("key") != node_states.OFF_TAINT]
