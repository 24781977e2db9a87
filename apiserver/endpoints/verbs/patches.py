"""Parse PATCH bodies into changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from apiserver.apis.meta import json_patch, merge_patch, strategic_patch
from apiserver.apis.meta.errors import BadRequest, Cause, Details, Invalid
from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.validation import FieldError, duplicate_field, unknown_field
from apiserver.endpoints import bodies
from apiserver.endpoints.negotiation import JSON, YAML, unsupported
from apiserver.registry.generic.store import Change

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
TYPES: Final = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH)
"""For OpenAPI, without :data:`APPLY_PATCH`."""
APPLY_PATCH: Final = "application/apply-patch+yaml"


REPEATABLE: Final = frozenset({MERGE_PATCH, STRATEGIC_PATCH})
"""A JSON patch may not be: repeating ``remove /metadata/finalizers/0`` removes two."""


def parse(media_type: str, raw: bytes, shape: strategic_patch.Shape) -> tuple[Change, tuple[FieldError, ...]]:
    """Parse a patch, except apply: return a function that patches the object which its argument returns, and field errors.

    These are repeated keys and operations' unknown members. Raises UnsupportedMediaType, BadRequest. The function raises
    for wrong operations.
    """
    if media_type not in TYPES:
        raise unsupported((*TYPES, APPLY_PATCH))
    body = bodies.decode(raw, JSON)
    value = {} if body.value is None and media_type == STRATEGIC_PATCH else body.value  # as Go reads it
    if media_type != JSON_PATCH and not isinstance(value, dict):
        raise BadRequest("error decoding patch: a merge patch must be an object")
    patch = body.afresh()  # the result may share parts
    prefix = ""
    unknown: tuple[FieldError, ...] = ()
    if media_type == JSON_PATCH:
        prefix = "json patch "
        unknown = tuple(unknown_field(each, prefix) for each in json_patch.unknown_members(value))
        apply: Callable[[Object], Any] = lambda current: json_patch.apply(current, patch())  # noqa: E731 - one line each of three
    elif media_type == MERGE_PATCH:
        apply = lambda current: merge_patch.apply(current, patch())  # noqa: E731 - as above
    else:
        apply = lambda current: strategic_patch.apply(current, patch() or {}, shape)  # noqa: E731 - as above
    duplicates = tuple(duplicate_field(each, prefix) for each in body.duplicates)
    return lambda stored: _object(apply(stored())), duplicates + unknown


def parse_apply(raw: bytes) -> tuple[Object, tuple[str, ...]]:
    """Return an apply patch's object, from YAML or JSON, and its repeated keys. Raises BadRequest."""
    body = _json_or_yaml(raw)
    if not isinstance(body.value, dict):
        raise BadRequest("error decoding patch: the applied configuration must be an object")
    return body.value, body.duplicates


def _json_or_yaml(raw: bytes) -> bodies.Body:
    """Decode YAML, or fifty times faster JSON, which kubectl sends. Raises BadRequest."""
    if raw[:1] == b"{":
        try:
            return bodies.decode(raw, JSON)
        except BadRequest:
            pass
    return bodies.decode(raw, YAML)


def _object(value: Any) -> Object:  # noqa: ANN401 - any JSON value
    if isinstance(value, dict):
        return value
    cause = Cause("FieldValueInvalid", "Invalid value: the patched document is not an object", "patch")
    raise Invalid("patch: Invalid value: the patched document is not an object", Details(causes=(cause,)))
