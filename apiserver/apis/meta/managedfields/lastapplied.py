"""Migration from client-side to server-side apply, by kubectl's annotation."""

from __future__ import annotations

from typing import Any, Final

import orjson

from apiserver.apis.meta.managedfields import elements, sets
from apiserver.apis.meta.managedfields.comparing import compare
from apiserver.apis.meta.managedfields.removing import fields_of
from apiserver.apis.meta.managedfields.schema import Atom, Mismatch
from apiserver.apis.meta.managedfields.sets import EMPTY, Fields
from apiserver.apis.meta.managedfields.validating import validate
from apiserver.apis.meta.objectmeta import MAX_ANNOTATIONS_BYTES
from apiserver.apis.meta.objects import Object, annotations_of

ANNOTATION: Final = "kubectl.kubernetes.io/last-applied-configuration"
MANAGER: Final = "kubectl"
"""Only kubectl's default name takes part, so users can opt out."""


def allowed(atom: Atom, api_version: str, live: Object) -> Fields:
    """Return the fields that ``live`` has as in its last-applied annotation: kubectl may take them without force.

    Empty if that is missing, invalid, or of another ``api_version``.
    """
    text = annotations_of(live).get(ANNOTATION)
    if not text:
        return EMPTY
    try:
        applied: Any = orjson.loads(text)
        if not isinstance(applied, dict) or applied.get("apiVersion") != api_version:
            return EMPTY
        validate(atom, live)
        validate(atom, applied)
        touched, removed = compare(atom, applied, live)
    except (orjson.JSONDecodeError, Mismatch):
        return EMPTY
    return sets.difference(sets.difference(fields_of(atom, applied), touched), removed)


def follow(obj: Object, applied: Object) -> Object:
    """Return the object with its last-applied annotation, if any, set to ``applied``; without it if all annotations become too large."""
    annotations = annotations_of(obj)
    if not annotations.get(ANNOTATION):
        return obj
    kept = {**annotations, ANNOTATION: elements.to_json(_bare(applied)) + "\n"}
    if sum(len(key.encode()) + len(value.encode()) for key, value in kept.items()) > MAX_ANNOTATIONS_BYTES:
        del kept[ANNOTATION]
    return {**obj, "metadata": {**obj["metadata"], "annotations": kept}}


def _bare(applied: Object) -> Object:
    metadata = applied.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("annotations"), dict):
        return applied
    rest = {key: value for key, value in metadata["annotations"].items() if key != ANNOTATION}
    return {**applied, "metadata": {**metadata, "annotations": rest}}
