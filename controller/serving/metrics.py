"""``/metrics`` over TLS for users who may ``get`` that path, as in kube-apiserver's own components."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from apiserver.client.delegated import Access
from certs.reloading import Files, ServerTls
from controller.serving.listening import listening

logger = logging.getLogger(__name__)

PATH: Final = "/metrics"
CERTIFICATE_SECONDS: Final = 2.0
"""virt-controller may still be making the certificate."""


async def certificate(files: Files) -> ServerTls:
    """Wait until the certificate exists; return a ServerTls that requests no client certificates."""
    told = ""
    while True:
        try:
            return ServerTls(files)
        except OSError as error:
            if str(error) != told:
                told = str(error)
                logger.info("metrics are not served until a certificate exists: %s", told)
            await asyncio.sleep(CERTIFICATE_SECONDS)


class MetricsServer:
    """Serves the text of ``render`` (Prometheus' text format, version 0.0.4) to users that ``access`` admits."""

    def __init__(self, port: int, render: Callable[[], Awaitable[bytes]], access: Access, files: Files, *, host: str = "") -> None:
        self._host = host or None
        self._port = port
        self._render = render
        self._access = access
        self._files = files
        self.bound_port = 0

    async def run(self) -> None:
        """Serve ``/metrics`` until cancelled, as soon as there is a certificate."""
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
        return web.Response(body=await self._render(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})
