"""The guest's screen."""

from __future__ import annotations

from apiserver.apis.virt.spec.screenshot import MAX_BYTES
from launcher.hypervisor.port import Hypervisor
from launcher.main.decisions import requests
from launcher.main.decisions.refusal import RequestRefused
from launcher.main.lifecycle.record import Record


class Screen:
    """Takes pictures of the guest's screen, also while it is paused."""

    def __init__(self, hypervisor: Hypervisor, record: Record) -> None:
        self._hypervisor = hypervisor
        self._record = record

    async def picture(self) -> bytes:
        """Return a picture of the guest's screen as PNG. Raises RequestRefused."""
        if not requests.has_guest(self._record.known, "take a screenshot"):
            raise RequestRefused("Conflict", "cannot take a screenshot: the guest is off")
        with requests.errors_refused():
            return await self._hypervisor.screenshot(self._record.known.name, MAX_BYTES)
