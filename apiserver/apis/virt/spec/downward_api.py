"""Fields of a machine, and resources of its pod, that a disk of type DownwardAPI has as files: Kubernetes' names for them. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from apiserver.apis.meta.objects import Object, annotations_of, labels_of, name_of, namespace_of, uid_of

FIELDS: Final = ("metadata.name", "metadata.namespace", "metadata.uid", "metadata.labels", "metadata.annotations")
"""Values of ``fieldRef.fieldPath``, beside ``metadata.labels['<key>']`` and ``metadata.annotations['<key>']``."""
MAX_ITEMS: Final = 64
MANIFEST: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""The annotation with all of the machine as it was applied: it is not among ``metadata.annotations``, which are the author's own."""

_ONE: Final = re.compile(r"metadata\.(labels|annotations)\['([^']*)'\]")


def key_of(field: str) -> str | None:
    """Return the key of the label or annotation that a field path names, or None."""
    match = _ONE.fullmatch(field)
    return None if match is None else match[2]


def annotations_read(vm: Object, fields: Collection[str]) -> dict[str, str]:
    """Return the annotations of a machine of which :func:`value` of one of these fields says anything."""
    keys = {key_of(field) for field in fields}
    whole = "metadata.annotations" in fields
    return {key: each for key, each in annotations_of(vm).items() if key in keys or (whole and key != MANIFEST)}


def value(vm: Object, field: str) -> str:
    """Return the text of a field of a machine; empty where there is no such label or annotation, or no such field.

    Labels and annotations as a whole are lines ``key="value"`` in the order of their keys, the value quoted as in JSON.
    """
    match field:
        case "metadata.name":
            return name_of(vm)
        case "metadata.namespace":
            return namespace_of(vm)
        case "metadata.uid":
            return uid_of(vm)
        case "metadata.labels":
            return _lines(labels_of(vm))
        case "metadata.annotations":
            return _lines({key: each for key, each in annotations_of(vm).items() if key != MANIFEST})
        case _:
            return _one(vm, field)


def _one(vm: Object, field: str) -> str:
    if (match := _ONE.fullmatch(field)) is None:
        return ""
    return str((labels_of(vm) if match[1] == "labels" else annotations_of(vm)).get(match[2], ""))


def _lines(pairs: Mapping[str, Any]) -> str:
    return "\n".join(f"{key}={json.dumps(str(pairs[key]), ensure_ascii=False)}" for key in sorted(pairs))
