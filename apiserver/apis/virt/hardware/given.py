"""The devices of ``spec.domain``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from apiserver.apis.meta.objects import Object

Domain = Mapping[str, Any]
"""``spec.domain``."""


def devices(domain: Domain, field: str, otherwise: Sequence[Object]) -> list[Object]:
    """Return the items of ``devices.<field>``, each without its fields that are null; ``otherwise`` if the list is unset."""
    given = (domain.get("devices") or {}).get(field)
    if given is None:
        return list(otherwise)
    return [said(each) for each in given]


def device(domain: Domain, field: str) -> Object | None:
    """Return the object ``devices.<field>`` without its fields that are null; None if unset."""
    given = (domain.get("devices") or {}).get(field)
    return None if given is None else said(given)


def with_devices(domain: Domain, field: str, found: Sequence[Object]) -> Object:
    """Return a copy of ``domain`` with ``found`` as its ``devices.<field>``."""
    return {**domain, "devices": {**(domain.get("devices") or {}), field: list(found)}}


def said(given: Mapping[str, Any]) -> Object:
    """Return an object without null members; nested ones stay."""
    return {key: value for key, value in given.items() if value is not None}
