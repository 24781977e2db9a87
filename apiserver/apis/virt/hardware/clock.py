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
"""Names of time zones; none leads out of the directory that they are files of."""
ZONES: Final = Path("/usr/share/zoneinfo")
"""The time zones of the system, of one release in the images of virt-api and virt-launcher: QEMU takes one that is not there for UTC."""


def is_zone(name: str, zones: Path = ZONES) -> bool:
    """Return whether there is a time zone of this name; where the system has none at all, whether there could be."""
    return bool(ZONE.fullmatch(name)) and _is_there(name, zones)


@lru_cache(maxsize=1024)
def _is_there(name: str, zones: Path) -> bool:
    return not zones.is_dir() or (zones / name).is_file()


def timers(domain: Domain) -> dict[str, Mapping[str, Any]]:
    """Return what is said of each timer, by its name; nothing is said of the others."""
    given = (domain.get("clock") or {}).get("timer") or {}
    return {name: given[name] for name in TIMERS if given.get(name) is not None}


def is_present(domain: Domain, timer: str) -> bool:
    """Return whether the guest has a timer: each of which something is said, unless that is that it is not there; never mind an hpet.

    An hpet is there only where that is said: guests keep time worse with it, and cost more.
    """
    said = timers(domain).get(timer)
    present = None if said is None else said.get("present")
    return present is not False and (said is not None if timer != "hpet" else bool(present))


def for_kvm_alone(domain: Domain) -> tuple[str, ...]:
    """Return the paths below ``spec.domain`` of what is given and means nothing to an emulated machine."""
    found = [f"clock.timer.{name}" for name in ("hyperv", "kvm") if name in timers(domain)]
    return (*found, *(f"clock.timer.{name}.tickPolicy" for name, said in timers(domain).items() if said.get("tickPolicy")))
