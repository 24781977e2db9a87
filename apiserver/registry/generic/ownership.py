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
    if not mine or not before or len(mine) != len(before):
        return
    kept = {**new["metadata"], "managedFields": before}
    if {**new, "metadata": kept} != old:
        return  # as of most writes: the first text that differs says so
    if all({**each, "time": ""} == {**other, "time": ""} for each, other in zip(mine, before, strict=True)):
        new["metadata"]["managedFields"] = before
