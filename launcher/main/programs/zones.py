"""Time zones in the image."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from apiserver.apis.virt.hardware import clock as hardware
from launcher.domain import clock
from launcher.domain.values import InvalidSpecification


def require(specification: Mapping[str, Any], zones: Path = hardware.ZONES) -> None:
    """Check that the machine's time zone exists, or raise InvalidSpecification."""
    if (zone := clock.zone(specification)) and not (zones / zone).is_file():
        raise InvalidSpecification(f"clock.timezone: time zone {zone!r} not found")
