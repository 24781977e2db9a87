"""``kubectl virt vnc`` and ``spice``: show a guest's screen in a local viewer, or serve it on loopback."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import ClassVar, Final

from apiserver.kubectl import proxy
from apiserver.kubectl.access import Access
from apiserver.kubectl.messages import Failure

Viewers = Mapping[str, tuple[str, ...]]
"""On PATH, in order, with their arguments."""


def viewer(viewers: Viewers, address: str, port: int, which: Callable[[str], str | None] = shutil.which) -> tuple[str, ...] | None:
    """Return the command line of the first viewer on PATH, or None."""
    for program, arguments in viewers.items():
        if found := which(program):
            return (found, *(each.format(address=address, port=port) for each in arguments))
    return None


class Display(proxy.Proxy):
    """Serves a machine's screen on a local port, for a viewer program."""

    what = "screen"
    viewers: ClassVar[Viewers]

    async def run(self, *, port: int, proxy_only: bool) -> None:
        """Serve on a local ``port`` (0: any) until the viewer ends, or with ``proxy_only`` until cancelled. Raises Failure."""
        await self.serve(port, None if proxy_only else self._command)

    def _command(self, port: int) -> tuple[str, ...]:
        command = viewer(self.viewers, proxy.ADDRESS, port)
        if command is None:
            raise Failure(f"error: none of {', '.join(self.viewers)} is on PATH: install one, or use --proxy-only and another viewer")
        return command


class Vnc(Display):
    """A display of type vnc."""

    stream = "vnc"
    viewers: ClassVar[Viewers] = {
        "remote-viewer": ("vnc://{address}:{port}",),
        "vncviewer": ("{address}::{port}",),  # TigerVNC, TightVNC and RealVNC read two colons as a port
        "vinagre": ("vnc://{address}:{port}",),
        "gvncviewer": ("{address}::{port}",),
    }


class Spice(Display):
    """A display of type spice."""

    stream = "spice"
    viewers: ClassVar[Viewers] = {
        "remote-viewer": ("spice://{address}:{port}",),
        "spicy": ("--uri=spice://{address}:{port}",),
        "vinagre": ("spice://{address}:{port}",),
    }


DISPLAYS: Final[Mapping[str, type[Display]]] = {each.stream: each for each in (Vnc, Spice)}


async def show(kind: type[Display], name: str, load: Callable[[], Awaitable[Access]], *, port: int, proxy_only: bool) -> int:
    """Show a machine's screen; return 0, or 1 after printing a failure."""
    try:
        await kind(name, load).run(port=port, proxy_only=proxy_only)
    except Failure as failure:
        sys.stderr.write(f"{failure}\n")
        return 1
    return 0
