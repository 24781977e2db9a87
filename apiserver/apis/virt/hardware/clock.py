"""The guest's clock: ``clock``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from apiserver.apis.virt.hardware.given import Domain

TIMERS: Final = ("hpet", "hyperv", "kvm", "pit", "rtc")
ZONE: Final = re.compile(r"(?=.{1,64}\Z)[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*")
"""They cannot leave their directory."""
ZONES: Final = Path("/usr/share/zoneinfo")
"""The same version in virt-api's and virt-launcher's images. QEMU treats a missing zone as UTC."""


def is_zone(name: str, zones: Path = ZONES) -> bool:
    """Return whether a time zone exists; without installed time zones, whether the name is valid."""
    return bool(ZONE.fullmatch(name)) and _is_there(name, zones)


@lru_cache(maxsize=1024)
def _is_there(name: str, zones: Path) -> bool:
    return not zones.is_dir() or (zones / name).is_file()


def timers(domain: Domain) -> dict[str, Mapping[str, Any]]:
    """Return the specified timers, ``clock.timer.*``, by name."""
    given = (domain.get("clock") or {}).get("timer") or {}
    return {name: given[name] for name in TIMERS if given.get(name) is not None}


def is_present(domain: Domain, timer: str) -> bool:
    """Return whether the guest has a timer: a specified one unless disabled; an hpet only if enabled."""
    said = timers(domain).get(timer)
    present = None if said is None else said.get("present")
    return present is not False and (said is not None if timer != "hpet" else bool(present))


def for_kvm_alone(domain: Domain) -> tuple[str, ...]:
    """Return the paths, below ``spec.domain``, of specified timer fields without effect on an emulated machine."""
    found = [f"clock.timer.{name}" for name in ("hyperv", "kvm") if name in timers(domain)]
    return (*found, *(f"clock.timer.{name}.tickPolicy" for name, said in timers(domain).items() if said.get("tickPolicy")))
