"""``/livez``, ``/readyz`` and ``/metrics`` over plain HTTP, for the kubelet and Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiohttp import web

from controller.manager.metrics import Metrics


class Health:
    """Alive is who answers. Ready is who could lead: a standby is ready, too, so that a rolling update does not wait for a lease."""

    def __init__(self, port: int, metrics: Metrics, is_ready: Callable[[], bool], *, host: str = "") -> None:
        self._host = host or None
        self._port = port
        self._metrics = metrics
        self._is_ready = is_ready
        self.bound_port = 0
        """The port in use, once it serves: ``port=0`` takes any."""

    async def run(self) -> None:
        """Serve until cancelled."""
        app = web.Application()
        app.router.add_get("/livez", self._livez)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._serve_metrics)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await runner.setup()
        try:
            await web.TCPSite(runner, self._host, self._port).start()
            self.bound_port = runner.addresses[0][1]
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()

    async def _livez(self, _: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _readyz(self, _: web.Request) -> web.Response:
        ready = self._is_ready()
        return web.Response(text="ok" if ready else "not ready", status=200 if ready else 503)

    async def _serve_metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=self._metrics.text(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})
