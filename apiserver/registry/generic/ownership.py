"""The store's interface to managed fields; :mod:`apiserver.apis.meta.managedfields` has the rules."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Protocol

from apiserver.apis.meta.objects import Object


class FieldOwners(Protocol):
    """Computes ``managedFields``, which name each field's manager, for one version and subresource."""

    def update(self, live: Object | None, new: Object, manager: str, now: datetime) -> None:
        """Set ``new.metadata.managedFields`` after a change from ``live`` (None: absent). Never raises."""
        ...

    def apply(self, live: Object | None, applied: Object, manager: str, *, force: bool, now: datetime) -> Object:
        """Return ``live`` (None: absent) with the applied object and managed fields merged in, changing neither.

        Raises Conflict if ``applied`` changes other managers' fields without ``force``; BadRequest or Invalid if it is wrong;
        InternalError for invalid stored managed fields.
        """
        ...


OwnersOf = Callable[[str], FieldOwners | None]
"""Returns a subresource's owners (empty: the main resource); None if off."""


def no_owners(subresource: str) -> FieldOwners | None:
    """Return None: managed fields are off."""
    del subresource
    return None


def keep_times(new: Object, old: Object) -> None:
    """Restore old times in ``managedFields``, in place, if nothing else differs (Go: IgnoreManagedFieldsTimestampsTransformer).

    Otherwise, such a write would trigger watches.
    """
    mine, before = new["metadata"].get("managedFields"), old["metadata"].get("managedFields")
    if not mine or not before or len(mine) != len(before):
        return
    kept = {**new["metadata"], "managedFields": before}
    if {**new, "metadata": kept} != old:
        return
    if all({**each, "time": ""} == {**other, "time": ""} for each, other in zip(mine, before, strict=True)):
        new["metadata"]["managedFields"] = before
