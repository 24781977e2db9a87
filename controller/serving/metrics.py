"""``/metrics`` over TLS, for whoever may ``get`` that path: what Prometheus reads, as kube-apiserver's own components serve theirs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from aiohttp import web

from apiserver.client.delegated import Access
from certs.reloading import Files, ServerTls
from controller.serving.listening import listening

logger = logging.getLogger(__name__)

PATH: Final = "/metrics"
CERTIFICATE_SECONDS: Final = 2.0
"""Between looks for a certificate that is not there yet: virt-controller may only be making it."""


async def certificate(files: Files) -> ServerTls:
    """Return the context of a server that asks clients for no certificate, as soon as its own is there."""
    told = ""
    while True:
        try:
            return ServerTls(files)
        except OSError as error:
            if str(error) != told:
                told = str(error)
                logger.info("metrics wait for a certificate: %s", told)
            await asyncio.sleep(CERTIFICATE_SECONDS)


class MetricsServer:
    """Serves what ``render`` returns (the text format of Prometheus, version 0.0.4) to those whom ``access`` lets read it."""

    def __init__(self, port: int, render: Callable[[], bytes], access: Access, files: Files, *, host: str = "") -> None:
        self._host = host or None
        self._port = port
        self._render = render
        self._access = access
        self._files = files
        self.bound_port = 0
        """The port in use, once it serves: ``port=0`` takes any."""

    async def run(self) -> None:
        """Serve until cancelled, as soon as there is a certificate, and with the newest one for each connection."""
        tls = await certificate(self._files)
        app = web.Application()
        app.router.add_get(PATH, self._serve)
        async with listening(app, self._host, self._port, tls.context) as self.bound_port:
            await tls.run()

    async def _serve(self, request: web.Request) -> web.Response:
        refusal = await self._access.refusal(request.headers.get("Authorization", ""), PATH)
        if refusal is not None:
            headers = {"WWW-Authenticate": "Bearer"} if refusal.code == 401 else {}
            return web.Response(status=refusal.code, text=f"{refusal.message}\n", headers=headers)
        return web.Response(body=self._render(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})
