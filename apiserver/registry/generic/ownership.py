"""Managed fields as the store asks of them. The rules are :mod:`apiserver.apis.meta.managedfields`'."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Protocol

from apiserver.apis.meta.objects import Object


class FieldOwners(Protocol):
    """The managed fields of one served version and subresource. Pure."""

    def update(self, live: Object | None, new: Object, manager: str, now: datetime) -> None:
        """Set ``new.metadata.managedFields`` after ``manager`` made ``new`` of ``live`` (None: created it). Never raises."""
        ...

    def apply(self, live: Object | None, applied: Object, manager: str, *, force: bool, now: datetime) -> Object:
        """Return ``live`` (None: nothing yet) merged with what ``manager`` applies, managed fields included; neither is changed.

        Raises:
            StatusError: Conflict with the fields of other managers, or what is wrong with ``applied``.
        """
        ...


OwnersOf = Callable[[str], FieldOwners | None]
"""Returns the owners for a subresource (empty: the main resource); None where nobody keeps count."""


def no_owners(subresource: str) -> FieldOwners | None:
    """Keep no count."""
    del subresource
    return None


def keep_times(new: Object, old: Object) -> None:
    """Put the old times back into ``managedFields``, in place, where nothing else differs (Go: IgnoreManagedFieldsTimestampsTransformer).

    A write that only says the same again would otherwise change the object, and wake everybody who watches it.
    """
    mine, before = new["metadata"].get("managedFields"), old["metadata"].get("managedFields")
    if not mine or not before or len(mine) != len(before) or mine == before:
        return
    for each, other in zip(mine, before, strict=True):
        if each["fieldsV1"] != other["fieldsV1"] or {**each, "time": ""} != {**other, "time": ""}:
            return
    same = new.keys() == old.keys() and all(new[key] == old[key] for key in new if key != "metadata")
    if same and {**new["metadata"], "managedFields": before} == old["metadata"]:
        new["metadata"]["managedFields"] = before
