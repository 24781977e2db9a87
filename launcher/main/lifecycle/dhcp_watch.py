"""The addresses that the guest is told by DHCP: whether somebody tells them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from launcher.main.decisions import known
from launcher.main.lifecycle.record import Record
from launcher.protocol import messages

LOOK_SECONDS: Final = 5.0


class DhcpWatch:
    """Looks at the server, which lives as long as the pod: nobody else notices that it does not hear the guest any more."""

    def __init__(self, mend: Callable[[], messages.DhcpStatus], record: Record) -> None:
        self._mend = mend
        self._record = record

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        """Take in how the server is, which begins anew where it was dead."""
        self._record.take(known.dhcp_looked_at, self._mend())
