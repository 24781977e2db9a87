"""Fields of a machine and resources of its pod, as files on a DownwardAPI disk, with Kubernetes' names."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from apiserver.apis.meta.objects import Object, annotations_of, labels_of, name_of, namespace_of, uid_of

FIELDS: Final = ("metadata.name", "metadata.namespace", "metadata.uid", "metadata.labels", "metadata.annotations")
"""Besides ``metadata.labels['<key>']`` and ``metadata.annotations['<key>']``."""
MAX_ITEMS: Final = 64
MANIFEST: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""Excluded from ``metadata.annotations``: it contains the whole machine."""

_ONE: Final = re.compile(r"metadata\.(labels|annotations)\['([^']*)'\]")


def key_of(field: str) -> str | None:
    """Return the key in a path ``metadata.labels['<key>']`` or of an annotation, or None."""
    match = _ONE.fullmatch(field)
    return None if match is None else match[2]


def annotations_read(vm: Object, fields: Collection[str]) -> dict[str, str]:
    """Return the machine's annotations that :func:`value` reads for these fields, and those with the key of a label in them."""
    keys = {key_of(field) for field in fields}
    whole = "metadata.annotations" in fields
    return {key: each for key, each in annotations_of(vm).items() if key in keys or (whole and key != MANIFEST)}


def value(vm: Object, field: str) -> str:
    """Return a machine's field as text; empty if missing.

    All labels, or annotations without ``MANIFEST``, are lines ``key="value"`` sorted by key, with values quoted as in JSON.
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
