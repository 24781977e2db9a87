"""Types of ``metadata`` for mypy. Import them under ``TYPE_CHECKING``."""

from __future__ import annotations

from typing import Any, Required, TypedDict


class OwnerReference(TypedDict, total=False):
    """An item of ``metadata.ownerReferences``."""

    apiVersion: Required[str]
    kind: Required[str]
    name: Required[str]
    uid: Required[str]
    controller: bool
    blockOwnerDeletion: bool


class ObjectMeta(TypedDict, total=False):
    """The ``metadata`` of a stored object; fields other than ``name`` may be absent."""

    name: Required[str]
    generateName: str
    namespace: str
    uid: str
    resourceVersion: str
    generation: int
    creationTimestamp: str
    deletionTimestamp: str
    deletionGracePeriodSeconds: int
    labels: dict[str, str]
    annotations: dict[str, str]
    finalizers: list[str]
    ownerReferences: list[OwnerReference]
    managedFields: list[dict[str, Any]]
