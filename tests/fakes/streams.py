"""A fake kube-apiserver with one VM: console, USB slots and ports echo, the screen sends first."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import WSMsgType, web

from apiserver.apis.meta import errors
from apiserver.apis.virt.places import streams

PATH = "/apis/kubevirt.io/v1alpha1/namespaces/{namespace}/virtualmachines/{name}"
SCREENFUL = b"login: "
RFB = b"RFB 003.008\n"


class FakeStreams:
    def __init__(self) -> None:
        self.refusals: list[errors.StatusError | int] = []
        """Answers to the next requests; a number is the status of a plain text answer."""
        self.requests: list[tuple[str, str, list[tuple[str, str]]]] = []
        self.queries: list[dict[str, str]] = []
        self.typed = b""
        self.scrollback = SCREENFUL
        """Sent first on each console connection."""
        self.warnings: list[str] = []
        self.subprotocols: list[str] = []
        self.open: set[web.WebSocketResponse] = set()
        self.answers: dict[str, dict[str, Any]] = {}
        """By verb; the machine itself without one."""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        app = web.Application()
        app.router.add_get(PATH + "/{stream:console|vnc|spice|usbredir|log}", self._stream)
        app.router.add_get(PATH + "/{stream:portforward}/{port}/{protocol}", self._stream)
        app.router.add_put(PATH + "/{verb}", self._verb)
        app.router.add_get(PATH + "/{verb}", self._verb)
        app.router.add_get(PATH, self._verb)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await self.close(streams.CLOSE_GOING_AWAY)
            await runner.cleanup()

    async def close(self, code: int, reason: str = "") -> None:
        for each in tuple(self.open):
            await each.close(code=code, message=reason.encode())

    def cut(self) -> None:
        for each in tuple(self.open):
            transport = each._req.transport if each._req is not None else None
            if transport is not None:
                transport.abort()

    def _refuse(self, request: web.Request) -> web.Response | None:
        self.requests.append((request.method, request.path, list(request.headers.items())))
        if not self.refusals:
            return None
        refusal = self.refusals.pop(0)
        if isinstance(refusal, int):
            return web.Response(status=refusal, text="upstream is sad")
        return web.Response(status=refusal.code, text=json.dumps(refusal.to_json()), content_type="application/json")

    async def _verb(self, request: web.Request) -> web.Response:
        return self._refuse(request) or web.json_response(self.answers.get(request.match_info.get("verb", ""), {"kind": "VirtualMachine"}))

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        if (refusal := self._refuse(request)) is not None:
            return refusal
        is_port = request.match_info["stream"] == "portforward"
        if is_port and "Upgrade" not in request.headers:
            return web.json_response(errors.BadRequest("Upgrade request required").to_json(), status=400)
        self.queries.append(dict(request.query))
        self.subprotocols.append(request.headers.get("Sec-WebSocket-Protocol", ""))
        socket = web.WebSocketResponse(protocols=[streams.SUBPROTOCOL])
        for warning in self.warnings:
            socket.headers.add("Warning", warning)
        await socket.prepare(request)
        self.open.add(socket)
        try:
            if request.match_info["stream"] == "log" and request.query["follow"] == "false":
                await socket.send_bytes(self.scrollback)
                await socket.close(message=b"the end of the output")
            elif not is_port:
                await socket.send_bytes(RFB if request.match_info["stream"] == "vnc" else self.scrollback)
            async for message in socket:
                if message.type is WSMsgType.BINARY:
                    self.typed += message.data
                    self.scrollback += message.data.upper()
                    await socket.send_bytes(message.data.upper())
                if is_port and not message.data:
                    await socket.send_bytes(b"OK")
                    await socket.close()
        finally:
            self.open.discard(socket)
        return socket
