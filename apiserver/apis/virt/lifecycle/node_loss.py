"""The condition NodeLost, from the end of an attempt on a node that is off to the next attempt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from apiserver.apis.meta import objects
from apiserver.apis.virt.lifecycle import conditions

Policy = Literal["Restart", "Wait"]
RESTART: Final[Policy] = "Restart"
WAIT: Final[Policy] = "Wait"
FENCED: Final = "Fenced"
"""``NodeLost=True``: a person states that the node is off."""
SEALED: Final = "Sealed"
"""``NodeLost=True``: the guardian of the node has ended its guests."""
RESTARTED: Final = "Restarted"
"""``NodeLost=False``."""


def is_lost(vm: Mapping[str, Any]) -> bool:
    """Return whether the machine's last attempt was lost with its node (condition ``NodeLost``)."""
    return objects.is_true((vm.get("status") or {}).get("conditions"), conditions.NODE_LOST)


def waits_for_user(vm: Mapping[str, Any]) -> bool:
    """Return whether the machine's node was lost, and the machine stays off until a user starts it (onNodeLoss: Wait)."""
    return is_lost(vm) and (vm.get("spec") or {}).get("onNodeLoss") == WAIT
