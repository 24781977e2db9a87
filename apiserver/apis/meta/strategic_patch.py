"""Strategic merge patch: a merge patch that gets the keys of lists from the schema.

In a patch,

- ``$patch: replace | delete | merge`` in a map (or an element of a keyed list) is the operation;
- ``$retainKeys: [a, b]`` removes all other keys of the map;
- ``$deleteFromPrimitiveList/x: [v]`` removes values from list ``x``, and ``$setElementOrder/x: […]`` orders it.

A list merges if ``x-kubernetes-patch-strategy`` in the published OpenAPI (:class:`Shape`) says so, by ``x-kubernetes-patch-merge-key`` if
its elements are maps. As in apimachinery, the patch's elements keep their order, and the others their relative positions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from apiserver.apis.meta import errors

_PATCH: Final = "$patch"
_RETAIN_KEYS: Final = "$retainKeys"
_DELETE: Final = "$deleteFromPrimitiveList/"
_ORDER: Final = "$setElementOrder/"
_REF: Final = "#/components/schemas/"


@dataclass(frozen=True, slots=True)
class Shape:
    """A place in an OpenAPI schema. ``components``: the document's schemas. If ``schema`` is empty, maps merge and lists are replaced."""

    schema: Any
    components: Mapping[str, Mapping[str, Any]]

    @property
    def strategies(self) -> frozenset[str]:
        """The field's declared strategies: ``merge``, ``replace``, ``retainKeys``; only "" if it declares none."""
        return frozenset(str(self._own("x-kubernetes-patch-strategy")).split(","))

    @property
    def merge_key(self) -> str:
        """The field that identifies each map of a list, or ""."""
        return str(self._own("x-kubernetes-patch-merge-key"))

    def field(self, name: str) -> Shape:
        """Return a field's shape, empty if unknown."""
        resolved = self._resolved()
        properties = resolved.get("properties") or {}
        return Shape(properties.get(name) or resolved.get("additionalProperties") or {}, self.components)

    def element(self) -> Shape:
        """Return the shape of a list's items."""
        return Shape(self._resolved().get("items") or {}, self.components)

    def _own(self, extension: str) -> Any:  # noqa: ANN401 - JSON
        return (self.schema.get(extension) or "") if isinstance(self.schema, Mapping) else ""

    def _resolved(self) -> Mapping[str, Any]:
        if not isinstance(self.schema, Mapping):  # additionalProperties: true
            return {}
        reference = self.schema.get("$ref") or next((each["$ref"] for each in self.schema.get("allOf") or () if "$ref" in each), None)
        return self.components.get(reference.removeprefix(_REF), {}) if reference else self.schema


def apply(document: dict[str, Any], patch: Any, shape: Shape) -> dict[str, Any]:  # noqa: ANN401 - any JSON value
    """Return the patched ``document``, which may share parts with the unchanged arguments.

    Raises:
        BadRequest: a malformed patch: an unknown directive, an element without its merge key …
    """
    if not isinstance(patch, dict):
        raise errors.BadRequest("error decoding patch: a strategic merge patch must be an object")
    return _merge_map(document, patch, shape)


def _merge_map(original: Mapping[str, Any], patch: Mapping[str, Any], shape: Shape) -> dict[str, Any]:
    directive = patch.get(_PATCH)
    if directive == "replace":
        return _clean_map({key: value for key, value in patch.items() if key != _PATCH})
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise _unknown_directive(directive)
    result = _retain(original, patch)
    for key in _touched(patch):
        value, exists = patch.get(key), key in patch
        if exists and value is None:
            result.pop(key, None)
        elif isinstance(result.get(key), dict) and isinstance(value, dict) and "replace" not in shape.field(key).strategies:
            result[key] = _merge_map(result[key], value, shape.field(key))
        elif exists and not isinstance(value, list):
            if not (isinstance(value, dict) and value.get(_PATCH) == "delete"):
                result[key] = _clean(value)
        else:
            _merge_list_field(result, patch, key, shape.field(key))
    return result


def _touched(patch: Mapping[str, Any]) -> list[str]:
    fields: dict[str, None] = {}
    for key in patch:
        if key in (_PATCH, _RETAIN_KEYS):
            continue
        fields[key.removeprefix(_DELETE).removeprefix(_ORDER)] = None
    return list(fields)


def _retain(original: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    retained = patch.get(_RETAIN_KEYS)
    if retained is None:
        return dict(original)
    if not isinstance(retained, list):
        raise errors.BadRequest("invalid patch format of retainKeys")
    for key, value in patch.items():
        if not key.startswith("$") and value is not None and key not in retained:
            raise errors.BadRequest("patch content doesn't match retainKeys list")
    return {key: value for key, value in original.items() if key in retained}


def _merge_list_field(result: dict[str, Any], patch: Mapping[str, Any], key: str, shape: Shape) -> None:
    original = result.get(key)
    original = original if isinstance(original, list) else []
    given = patch.get(key)
    order = _list_directive(patch, _ORDER + key, "invalid patch format of setElementOrder list")
    deleted = {_identity(each) for each in _list_directive(patch, _DELETE + key, "invalid patch format of primitive list")}
    if "merge" not in shape.strategies:
        if isinstance(given, list):
            result[key] = [_clean(each) for each in given]
        return
    _check_order(given or [], order, shape.merge_key)
    if key in result:
        merged = _ordered([*original], order, original, shape.merge_key) if given is None else _merge_list(original, given, shape, order)
        merged = [each for each in merged if _identity(each) not in deleted]
    else:
        merged = _ordered([_clean(each) for each in given or [] if not _is_directive_itself(each)], order, original, shape.merge_key)
    if merged or key in result or isinstance(given, list):
        result[key] = merged


def _check_order(patch: Sequence[Any], order: Sequence[Any], key: str) -> None:
    left = iter([_key(each, key) for each in order])
    kept = [each for each in patch if not (isinstance(each, dict) and each.get(_PATCH) == "delete")]
    if order and not all(_key(each, key) in left for each in kept):
        raise errors.BadRequest("the order in patch list doesn't match $setElementOrder list")


def _list_directive(patch: Mapping[str, Any], key: str, message: str) -> list[Any]:
    value = patch.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise errors.BadRequest(message)
    return value


def _merge_list(original: Sequence[Any], patch: Sequence[Any], shape: Shape, order: Sequence[Any]) -> list[Any]:
    if not any(isinstance(each, dict) for each in (*original, *patch)):
        once = {_identity(each): each for each in (*original, *patch)}  # also without its duplicates
        return _ordered([*once.values()], order or patch, original, "")
    key = shape.merge_key
    if not key:
        raise errors.BadRequest("strategic merge patch format is not supported: a list of objects has no merge key")
    replaced, edits, removed = _directives(patch, key)
    if replaced:
        return [_clean(each) for each in edits]
    # Of elements with the same key, the first is merged.
    merged = [each for each in original if _key(each, key) not in removed]
    places = _positions(merged, key)
    for edit in edits:
        place = places.setdefault(_key(edit, key), len(merged))
        if place == len(merged):
            merged.append(_merge_map({}, edit, shape.element()))
        else:
            merged[place] = _merge_map(merged[place], edit, shape.element())
    return _ordered(merged, order or edits, original, key)


def _directives(patch: Sequence[Any], key: str) -> tuple[bool, list[dict[str, Any]], set[str]]:
    """Return (replace the whole list?, elements to merge or of the new list, identities to remove). Raises BadRequest."""
    replaced, edits, removed = False, list[dict[str, Any]](), set[str]()
    for element in patch:
        if not isinstance(element, dict):
            raise errors.BadRequest("expected a map, but received a value in a list of maps")
        directive = element.get(_PATCH)
        if directive == "replace":
            replaced = True
            rest = {name: value for name, value in element.items() if name != _PATCH}
            edits += [rest] if rest else []
        elif directive == "delete":
            removed.add(_required_key(element, key))
        elif directive in (None, "merge"):
            _required_key(element, key)
            edits.append(element)
        else:
            raise _unknown_directive(directive)
    return replaced, edits, removed


def _ordered(merged: list[Any], order: Sequence[Any], original: Sequence[Any], key: str) -> list[Any]:
    """Return ``merged`` sorted by ``order``, others at their relative positions in ``original``."""
    wanted, before = _positions(order, key), _positions(original, key)
    named = sorted((each for each in merged if _key(each, key) in wanted), key=lambda each: wanted[_key(each, key)])
    others = [each for each in merged if _key(each, key) not in wanted]
    others.sort(key=lambda each: before.get(_key(each, key), len(before)))
    result: list[Any] = []
    taken = 0
    for each in named:
        place = before.get(_key(each, key), -1)
        while taken < len(others) and before.get(_key(others[taken], key), len(before)) < place:
            result.append(others[taken])
            taken += 1
        result.append(each)
    return result + others[taken:]


def _positions(elements: Sequence[Any], key: str) -> dict[str, int]:
    return {_key(each, key): position for position, each in reversed(list(enumerate(elements)))}


def _key(element: Any, key: str) -> str:  # noqa: ANN401 - any JSON value
    return _identity(element.get(key) if key and isinstance(element, dict) else element)


def _identity(value: Any) -> str:  # noqa: ANN401 - any JSON value
    return json.dumps(value, sort_keys=True)


def _required_key(element: Mapping[str, Any], key: str) -> str:
    if element.get(key) is None:
        fields = ", ".join(sorted(element))
        raise errors.BadRequest(f"map: an element with the fields [{fields}] does not contain declared merge key: {key}")
    return _key(element, key)


def _unknown_directive(directive: Any) -> errors.BadRequest:  # noqa: ANN401 - any JSON value
    return errors.BadRequest(f"unknown patch type: {directive}; $patch may be replace, delete or merge")


def _clean(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, dict):
        return {} if value.get(_PATCH) == "delete" else _clean_map(value)
    if isinstance(value, list):
        return [_clean(each) for each in value if not _is_directive_itself(each)]
    return value


def _is_directive_itself(element: Any) -> bool:  # noqa: ANN401 - any JSON value
    return isinstance(element, dict) and element.get(_PATCH) in ("delete", "replace") and len(element) <= 2


def _clean_map(value: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _clean(each) for key, each in value.items() if each is not None and not _is_directive(key)}


def _is_directive(key: str) -> bool:
    return key in (_PATCH, _RETAIN_KEYS) or key.startswith((_DELETE, _ORDER))
