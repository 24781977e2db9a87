"""``kubectl virt usbredir``: a USB device of this machine in a guest, by the program usbredirect, or a port of loopback for one."""

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
"""Of the package of the same name; https://gitlab.freedesktop.org/spice/usbredir."""


class Proxy(proxy.Proxy):
    """Programs that have a USB device on one side, websockets on the other. A slot has one client: a second one is refused."""

    stream = "usbredir"
    what = "USB slot"

    def __init__(self, name: str, load: Callable[[], Awaitable[Access]], slot: int | None = None) -> None:
        """``slot``: the first that is free where nothing is said."""
        super().__init__(name, load)
        self._slot = slot

    def opened(self, access: Access) -> AbstractAsyncContextManager[ClientConnection]:
        """Return an open websocket to the slot."""
        return streams.opened(access, self._name, self.stream, {} if self._slot is None else {"slot": self._slot})

    async def run(self, *, port: int, device: str | None) -> None:
        """Serve until usbredirect ends, or without a device until cancelled.

        Args:
            port: of loopback; 0: any that is free.
            device: as usbredirect takes it; None: whoever connects to the port has one.

        Raises:
            Failure: there is no slot, the port is taken, there is no usbredirect, or the right to the slot was withdrawn.
        """
        await self.serve(port, partial(_command, device) if device is not None else None)


def _command(device: str, port: int) -> tuple[str, ...]:
    found = shutil.which(PROGRAM)
    if found is None:
        raise Failure(f"error: {PROGRAM} is not on PATH: install it, or leave out --device and connect a program of your own")
    return (found, "--device", device, "--to", f"{proxy.ADDRESS}:{port}")


async def redirect(name: str, load: Callable[[], Awaitable[Access]], *, slot: int | None, port: int, device: str | None) -> int:
    """Run the command; return its exit code."""
    try:
        await Proxy(name, load, slot).run(port=port, device=device)
    except Failure as failure:
        sys.stderr.write(f"{failure}\n")
        return 1
    return 0
