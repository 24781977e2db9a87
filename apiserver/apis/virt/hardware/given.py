"""The lists of devices as their author wrote them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from apiserver.apis.meta.objects import Object

Domain = Mapping[str, Any]
"""``spec.domain``."""


def devices(domain: Domain, field: str, otherwise: Sequence[Object]) -> list[Object]:
    """Return the list ``devices.<field>``, or ``otherwise`` where nothing is said. A null says nothing, as everywhere."""
    given = (domain.get("devices") or {}).get(field)
    if given is None:
        return list(otherwise)
    return [{key: value for key, value in each.items() if value is not None} for each in given]
