"""Plain JSON objects ("unstructured") and accessors in place of typed attributes.

Accessors accept any stored object and never change it. An absent or null field reads as empty. Copy informers' shared objects before
writing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple, NewType, TypeAlias

from apiserver.apis.meta.resources import Resource

Object: TypeAlias = dict[str, Any]
HubObject = NewType("HubObject", dict[str, Any])
"""The kind's stored version; mypy refuses others in its place."""
Json: TypeAlias = Any


class NamespacedName(NamedTuple):
    """Key of an object within its kind."""

    namespace: str
    """Empty for a cluster-scoped object."""
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def dig(obj: Mapping[str, Any] | None, *path: str) -> Json:
    """Return the value at ``path``, or None if a step is absent, null or not a mapping."""
    value: Any = obj
    for step in path:
        if type(value) is not dict and not isinstance(value, Mapping):  # isinstance with an abstract class costs most
            return None
        value = value.get(step)
    return value


def name_of(obj: Mapping[str, Any]) -> str:
    """Return ``metadata.name``, or ""."""
    return dig(obj, "metadata", "name") or ""


def namespace_of(obj: Mapping[str, Any]) -> str:
    """Return ``metadata.namespace``; empty for cluster-scoped objects."""
    return dig(obj, "metadata", "namespace") or ""


def key_of(obj: Mapping[str, Any]) -> NamespacedName:
    """Return the object's namespace and name."""
    return NamespacedName(namespace_of(obj), name_of(obj))


def uid_of(obj: Mapping[str, Any]) -> str:
    """Return ``metadata.uid``, or ""."""
    return dig(obj, "metadata", "uid") or ""


def resource_version_of(obj: Mapping[str, Any]) -> str:
    """Return ``metadata.resourceVersion`` of an object or list, or ""."""
    return dig(obj, "metadata", "resourceVersion") or ""


def generation_of(obj: Mapping[str, Any]) -> int:
    """Return ``metadata.generation``, the spec's version; 0 without one."""
    return int(dig(obj, "metadata", "generation") or 0)


def labels_of(obj: Mapping[str, Any]) -> dict[str, str]:
    """Return ``metadata.labels``, or {}; do not modify."""
    return dig(obj, "metadata", "labels") or {}


def annotations_of(obj: Mapping[str, Any]) -> dict[str, str]:
    """Return ``metadata.annotations``, or {}; do not modify."""
    return dig(obj, "metadata", "annotations") or {}


def finalizers_of(obj: Mapping[str, Any]) -> list[str]:
    """Return ``metadata.finalizers``, or []; do not modify."""
    return dig(obj, "metadata", "finalizers") or []


def is_deleting(obj: Mapping[str, Any]) -> bool:
    """Return whether the object's deletion was requested (``deletionTimestamp``)."""
    return bool(dig(obj, "metadata", "deletionTimestamp"))


def controller_of(obj: Mapping[str, Any]) -> Object | None:
    """Return the ``ownerReference`` with ``controller: true``, or None."""
    references: Iterable[Object] = dig(obj, "metadata", "ownerReferences") or ()
    return next((each for each in references if each.get("controller")), None)


def owner_reference(owner: Mapping[str, Any], resource: Resource, *, block_owner_deletion: bool = False) -> Object:
    """Return the controlling ``ownerReference`` to ``owner``.

    ``blockOwnerDeletion`` requires the right to ``update`` the owner's ``finalizers``.
    """
    reference: Object = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": name_of(owner),
        "uid": uid_of(owner),
        "controller": True,
    }
    if block_owner_deletion:
        reference["blockOwnerDeletion"] = True
    return reference


def object_reference(obj: Mapping[str, Any], resource: Resource) -> Object:
    """Return the ``ObjectReference`` for Events about an object."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "namespace": namespace_of(obj),
        "name": name_of(obj),
        "uid": uid_of(obj),
        "resourceVersion": resource_version_of(obj),
    }


def condition(conditions: Iterable[Mapping[str, Any]] | None, type_: str) -> Mapping[str, Any] | None:
    """Return the condition of this type, or None."""
    return next((each for each in conditions or () if each.get("type") == type_), None)


def is_true(conditions: Iterable[Mapping[str, Any]] | None, type_: str) -> bool:
    """Return whether the condition exists and is True."""
    found = condition(conditions, type_)
    return found is not None and found.get("status") == "True"


def new_condition(obj: Mapping[str, Any], type_: str, status: str, reason: str, message: str) -> Object:
    """Return a condition for the present generation, without times, for :func:`with_condition`."""
    return {"type": type_, "status": status, "reason": reason, "message": message, "observedGeneration": generation_of(obj)}


def with_condition(conditions: Iterable[Mapping[str, Any]] | None, new: Mapping[str, Any], *, now: str) -> list[Object]:
    """Return the list with ``new`` in place of the condition of its type, or appended.

    Its ``lastTransitionTime`` becomes ``now`` (RFC 3339) if the status changes, or if no earlier time is known; else the earlier time.
    """
    result: list[Object] = [dict(each) for each in conditions or ()]
    placed = dict(new)
    for position, each in enumerate(result):
        if each.get("type") == new.get("type"):
            unchanged = each.get("status") == new.get("status")
            placed["lastTransitionTime"] = (each.get("lastTransitionTime") or now) if unchanged else now
            result[position] = placed
            return result
    placed["lastTransitionTime"] = now
    return [*result, placed]


def with_status_condition(status: Mapping[str, Any], new: Mapping[str, Any], *, now: str) -> Object:
    """Return the status with ``new`` among its conditions, as by :func:`with_condition`."""
    return {**status, "conditions": with_condition(status.get("conditions"), new, now=now)}


def with_conditions_judged(obj: Mapping[str, Any], status: Mapping[str, Any], types: Collection[str]) -> Object:
    """Return a copy of the status; its conditions of these types get the object's generation as ``observedGeneration``.

    The caller has judged that they still hold. As in Go's ``meta.SetStatusCondition``, those without ``observedGeneration`` get it too.
    """
    generation = generation_of(obj)
    if all(each.get("observedGeneration") == generation for each in status.get("conditions") or () if each.get("type") in types):
        return dict(status)
    known = [dict(each) for each in status.get("conditions") or ()]
    return {**status, "conditions": [{**each, "observedGeneration": generation} if each.get("type") in types else each for each in known]}


def without_condition(conditions: Iterable[Mapping[str, Any]] | None, type_: str) -> list[Object]:
    """Return the list without the condition of this type."""
    return [dict(each) for each in conditions or () if each.get("type") != type_]


def without_managed_fields(obj: Object) -> Object:
    """Return the object without ``metadata.managedFields``; it shares the rest with ``obj``."""
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict) or "managedFields" not in metadata:
        return obj
    others = metadata.copy()
    del others["managedFields"]
    return {**obj, "metadata": others}
