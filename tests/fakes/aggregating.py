"""The fake API server with the real virt-api behind it."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp
from aiohttp import web

from apiserver.apis.meta import errors
from apiserver.client.config import Config
from apiserver.server import dev, options, running
from apiserver.server.__main__ import kinds
from tests.fakes.kubeapi import FakeAPI


class AggregatingAPI(FakeAPI):
    def __init__(self) -> None:
        super().__init__()
        self.written: list[tuple[str, str]] = []
        self.lost_watch = ""
        """A collection's path: its watches lose all events."""
        self.refused: dict[str, errors.StatusError] = {}
        """Answers to POST, by the last word of the path."""
        self._behind: Config | None = None
        self._session: aiohttp.ClientSession | None = None

    @contextlib.asynccontextmanager
    async def aggregating(self, directory: Path, *flags: str) -> AsyncIterator[Config]:
        """Run virt-api behind this server, over memory unless flags change that; yield a client configuration for direct access.

        It is a process of its own only with flags: such a process takes a second of processor time to start.
        """
        server = _process(directory, *flags) if flags else _server(directory)
        try:
            async with server as self._behind:
                connector = aiohttp.TCPConnector(ssl=self._behind.ssl_context(), limit=0)
                async with aiohttp.ClientSession(connector=connector) as self._session:
                    yield self._behind
        finally:
            self._behind = None

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if not request.path.startswith("/apis/kubevirt.io"):
            return await super()._handle(request)
        self.requests.append((request.method, request.path, dict(request.query)))
        if request.method == "POST" and (refusal := self.refused.get(request.path.rpartition("/")[2])):
            return web.json_response(refusal.to_json(), status=refusal.code)
        if self._behind is None or self._session is None:
            return web.Response(status=503, text="no endpoints available")
        kept = {key: value for key, value in request.headers.items() if key in ("Accept", "Content-Type", "User-Agent")}
        url = self._behind.server + request.path_qs
        body = await request.read() or None
        async with self._session.request(request.method, url, data=body, headers=kept, timeout=aiohttp.ClientTimeout(total=None)) as answer:
            if request.method != "GET" and answer.ok:
                self.written.append((request.method, request.path))
            response = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.headers["Content-Type"]})
            await response.prepare(request)
            with contextlib.suppress(aiohttp.ClientError):
                async for chunk in answer.content.iter_any():
                    if "watch" not in request.query or request.path != self.lost_watch:
                        await response.write(chunk)
            return response


@contextlib.asynccontextmanager
async def _server(directory: Path) -> AsyncIterator[Config]:
    paths = dev.Paths(directory)
    dev.make_certificates(paths)
    flags = options.parse(dev.server_arguments(paths, 0))
    async with running.running(flags, lambda client: kinds(flags, client, None)) as (_, port):
        paths.kubeconfig.write_text(dev.kubeconfig(paths, port), encoding="utf-8")
        config = await _ready(paths.kubeconfig)
        assert config is not None, "virt-api did not get ready"
        yield config


@contextlib.asynccontextmanager
async def _process(directory: Path, *flags: str) -> AsyncIterator[Config]:
    kubeconfig, journal = directory / "kubeconfig", directory / "virt-api.log"
    with journal.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "apiserver.server.dev", f"--directory={directory}", "--port=0", *flags),
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        config = await _ready(kubeconfig, lambda: process.returncode is None)
        assert config is not None, f"virt-api did not get ready:\n{journal.read_text()[-3000:]}"
        yield config
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _ready(kubeconfig: Path, runs: Callable[[], bool] = lambda: True) -> Config | None:
    async with aiohttp.ClientSession() as session:
        for _ in range(600):
            if not runs():
                break
            with contextlib.suppress(OSError, aiohttp.ClientError):
                config = Config.load(str(kubeconfig)) if kubeconfig.exists() else None
                if config is not None:
                    async with session.get(f"{config.server}/readyz", ssl=config.ssl_context()) as response:
                        if response.status == 200:
                            return config
            await asyncio.sleep(0.05)
    return None
