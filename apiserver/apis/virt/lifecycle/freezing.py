"""Frozen file systems of a guest: field of the status, and time limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

FIELD: Final = "fsFreezeStatus"
FROZEN: Final = "frozen"
UNFREEZE_TIMEOUT_SECONDS: Final = 300
"""They thaw after this time unless the verb sets another."""
MAX_UNFREEZE_TIMEOUT_SECONDS: Final = 3600


def is_frozen(vm: Mapping[str, Any]) -> bool:
    """Return whether the guest's file systems are frozen."""
    return (vm.get("status") or {}).get(FIELD) == FROZEN
