"""``kubectl virt usbredir``: connect a local USB device to a guest, by usbredirect or a loopback port."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Final

from websockets.asyncio.client import ClientConnection

from apiserver.kubectl import proxy, streams
from apiserver.kubectl.access import Access
from apiserver.kubectl.messages import Failure

PROGRAM: Final = "usbredirect"
"""https://gitlab.freedesktop.org/spice/usbredir."""


class Proxy(proxy.Proxy):
    """Leads a local port, for a program with a USB device, to a guest's USB slot; a slot accepts one connection."""

    stream = "usbredir"
    what = "USB slot"

    def __init__(self, name: str, load: Callable[[], Awaitable[Access]], slot: int | None = None) -> None:
        """``slot``: the guest's; the first free one if None."""
        super().__init__(name, load)
        self._slot = slot

    def opened(self, access: Access) -> AbstractAsyncContextManager[ClientConnection]:
        """Return a context manager that opens a websocket to the slot."""
        return streams.opened(access, self._name, self.stream, {} if self._slot is None else {"slot": self._slot})

    async def run(self, *, port: int, device: str | None) -> None:
        """Serve until usbredirect ends, or without a ``device`` until cancelled."""
        await self.serve(port, partial(_command, device) if device is not None else None)


def _command(device: str, port: int) -> tuple[str, ...]:
    found = shutil.which(PROGRAM)
    if found is None:
        raise Failure(f"error: {PROGRAM} is not on PATH: install it, or omit --device and connect another program")
    return (found, "--device", device, "--to", f"{proxy.ADDRESS}:{port}")


async def redirect(name: str, load: Callable[[], Awaitable[Access]], *, slot: int | None, port: int, device: str | None) -> int:
    """Redirect a USB device; return 0, or 1 after printing a failure."""
    try:
        await Proxy(name, load, slot).run(port=port, device=device)
    except Failure as failure:
        sys.stderr.write(f"{failure}\n")
        return 1
    return 0
