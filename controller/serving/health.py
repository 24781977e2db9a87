"""``/livez`` and ``/readyz`` over plain HTTP, for the kubelet, which has no certificate. They reveal nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from aiohttp import web

from controller.serving.listening import listening

Checks = Mapping[str, Callable[[], bool]]


class Health:
    """Serves health: live if it answers, ready if all checks pass."""

    def __init__(self, port: int, checks: Checks, *, host: str = "") -> None:
        self._host = host or None
        self._port = port
        self._checks = checks
        self.bound_port = 0

    async def run(self) -> None:
        """Serve ``/livez`` and ``/readyz`` until cancelled. Raises OSError if the address cannot be bound."""
        app = web.Application()
        app.router.add_get("/livez", self._livez)
        app.router.add_get("/readyz", self._readyz)
        async with listening(app, self._host, self._port) as self.bound_port:
            await asyncio.Event().wait()

    async def _livez(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        missing = [name for name, is_ready in self._checks.items() if not is_ready()]
        return web.Response(status=503, text=f"not ready: {', '.join(missing)}\n") if missing else web.Response(text="ok\n")
