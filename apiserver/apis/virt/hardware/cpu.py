"""Virtual processors: ``cpu``."""

from __future__ import annotations

import math
from typing import Final

from apiserver.apis.virt.hardware.given import Domain

COUNTS: Final = ("sockets", "cores", "threads")


def vcpus(domain: Domain) -> int:
    """Return sockets times cores times threads."""
    cpu = domain.get("cpu") or {}
    return math.prod(int(cpu.get(each) or 1) for each in COUNTS)
