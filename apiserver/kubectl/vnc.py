"""``kubectl virt vnc``: show a guest's screen in a local viewer, or serve it on loopback."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Awaitable, Callable
from typing import Final

from apiserver.kubectl import proxy
from apiserver.kubectl.access import Access
from apiserver.kubectl.messages import Failure

VIEWERS: Final = {
    "remote-viewer": ("vnc://{address}:{port}",),
    "vncviewer": ("{address}::{port}",),  # TigerVNC, TightVNC and RealVNC read two colons as a port
    "vinagre": ("vnc://{address}:{port}",),
    "gvncviewer": ("{address}::{port}",),
}
"""Programs to look for on PATH, in order, with their arguments."""


def viewer(address: str, port: int, which: Callable[[str], str | None] = shutil.which) -> tuple[str, ...] | None:
    """Return the command of the first viewer on PATH, or None."""
    for program, arguments in VIEWERS.items():
        if found := which(program):
            return (found, *(each.format(address=address, port=port) for each in arguments))
    return None


class Proxy(proxy.Proxy):
    """Viewers on one side, websockets on the other."""

    stream = "vnc"
    what = "screen"

    async def run(self, *, port: int, proxy_only: bool) -> None:
        """Serve until the viewer ends, or with ``proxy_only`` until cancelled.

        Raises:
            Failure: screen, port or viewer are unavailable, or the right was withdrawn.
        """
        await self.serve(port, None if proxy_only else _command)


def _command(port: int) -> tuple[str, ...]:
    command = viewer(proxy.ADDRESS, port)
    if command is None:
        raise Failure(f"error: none of {', '.join(VIEWERS)} is on PATH: install one, or use --proxy-only and another viewer")
    return command


async def show(name: str, load: Callable[[], Awaitable[Access]], *, port: int, proxy_only: bool) -> int:
    """Show a machine's screen; return 0, or 1 after printing a failure."""
    try:
        await Proxy(name, load).run(port=port, proxy_only=proxy_only)
    except Failure as failure:
        sys.stderr.write(f"{failure}\n")
        return 1
    return 0
