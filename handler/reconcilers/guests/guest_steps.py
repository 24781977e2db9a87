"""All missing steps of a guest's disks and network cards, in their order. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from handler.reconcilers.guests import guest_disks, guest_interfaces
from launcher.protocol import messages

Step = guest_disks.Step | guest_interfaces.Step


def missing(vm: Mapping[str, Any], launcher: messages.Status) -> tuple[Step, ...]:
    """Return the missing steps, those of disks first."""
    return (*guest_disks.steps(dict(vm), launcher), *guest_interfaces.steps(dict(vm), launcher))
