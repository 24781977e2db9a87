"""Frozen file systems of a guest: the field of the status, and limits of time. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

FIELD: Final = "fsFreezeStatus"
FROZEN: Final = "frozen"
UNFREEZE_TIMEOUT_SECONDS: Final = 300
"""After this time they thaw automatically, unless the verb sets another."""
MAX_UNFREEZE_TIMEOUT_SECONDS: Final = 3600


def is_frozen(vm: Mapping[str, Any]) -> bool:
    """Return whether the file systems of a machine's guest are frozen."""
    return (vm.get("status") or {}).get(FIELD) == FROZEN
