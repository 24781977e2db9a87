"""Serial ports: ``devices.consoles``."""

from __future__ import annotations

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import given
from apiserver.apis.virt.hardware.given import Domain


def is_logged(domain: Domain) -> bool:
    """Return whether a container of the pod logs the first serial port."""
    return bool((domain.get("devices") or {}).get("logSerialConsole") and defaulted(domain))


def defaulted(domain: Domain) -> list[Object]:
    """Return ``devices.consoles``; by default one serial port."""
    return given.devices(domain, "consoles", [{"type": "pty"}])
