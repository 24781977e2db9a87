"""The server for virt-api: streams of this node's guests, and texts about them.

It accepts only virt-api's certificate, because virt-api has authorized the user. Errors are ``Status`` objects before the upgrade: 404 if
the VM is not here, 400 if its guest does not run or the websocket lacks our sub-protocol, 409 if a USB slot is taken, 429 if too many
streams are open. Texts (``reading``) are answered as JSON. A POST sets a password in the guest.
"""

from __future__ import annotations

import asyncio
import json
import socket as sockets
import weakref
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from aiohttp import web

from apiserver.apis.meta import errors
from apiserver.apis.meta.objects import NamespacedName
from apiserver.apis.virt.places import layout, streams
from apiserver.apis.virt.spec import password
from apiserver.apis.virt.spec.password import Password
from apiserver.client import buffers
from certs import peers
from certs.reloading import ServerTls
from handler.pods import places
from handler.streams import forwarding, pipe, reading
from handler.streams.forwarding import MakeSocket
from handler.streams.limits import DEFAULTS, Limits, OpenStreams, Wanted
from handler.streams.reading import Reading, Waiting
from handler.streams.slots import Slots
from handler.streams.spice import Channel
from handler.streams.usbredir import Packets

CLIENT: Final = "virt-api"
SOCKETS: Final[Mapping[str, str]] = {
    **{streams.console(port): layout.console_socket(port) for port in range(layout.SERIAL_PORTS)},
    **{streams.log(port, follow=each): layout.log_socket(port) for port in range(layout.SERIAL_PORTS) for each in (False, True)},
    **{streams.usbredir(slot): layout.redirection_socket(slot) for slot in range(layout.REDIRECTED_DEVICES)},
    "vnc": layout.VNC_SOCKET,
    "spice": layout.SPICE_SOCKET,
}
STREAMS: Final = frozenset({*SOCKETS, streams.usbredir()})
PATH: Final = "/v1/namespaces/{namespace}/virtualmachines/{name}/{uid}/{stream}"
CLOSE_SECONDS: Final = 3.0


@dataclass(frozen=True, slots=True)
class Target:
    """The pod of the requested guest, or why it cannot be reached; ``moving``: clients should connect again after a stream's end."""

    pod_uid: str
    problem: str = ""
    moving: bool = False
    addresses: tuple[str, ...] | None = ()
    """The guest's in the pod's network; None: unknown yet."""


SetPassword = Callable[[str, Password], Awaitable[None]]
"""(uid of the pod, password): has its launcher set it; raises StatusError."""
Lookup = Callable[[NamespacedName, str], Target | None]
"""(name, uid of the VirtualMachine) → its pod; None if it is not on this node."""


class Server:
    """Serves streams and texts of guests to virt-api; at the end, each open stream is closed with ``going away``."""

    def __init__(
        self,
        lookup: Lookup,
        tls: ServerTls,
        *,
        host: str = "",
        port: int = streams.HANDLER_PORT,
        kubelet: Path = places.KUBELET_DIRECTORY,
        limits: Limits = DEFAULTS,
        reads: Reading | None = None,
        set_password: SetPassword | None = None,
        make_socket: MakeSocket = sockets.socket,
    ) -> None:
        self.port = port
        self._reads = reads
        self._set_password = set_password
        self._make_socket = make_socket
        self._waiting = Waiting()
        self.ready = asyncio.Event()
        self._lookup = lookup
        self._tls = tls
        self._host = host
        self._kubelet = kubelet
        self._counted = OpenStreams(limits)
        self._slots = Slots()
        self._open: weakref.WeakSet[web.WebSocketResponse] = weakref.WeakSet()

    @property
    def count(self) -> int:
        """Number of open streams."""
        return len(self._counted)

    async def run(self) -> None:
        """Serve virt-api's requests until cancelled."""
        app = web.Application(client_max_size=1 << 16)
        app.router.add_get(PATH, self._serve)
        app.router.add_post(PATH, self._serve)
        app.on_shutdown.append(self._go_away)
        runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=CLOSE_SECONDS)
        await runner.setup()
        try:
            site = web.TCPSite(runner, self._host or None, self.port, ssl_context=self._tls.context)
            await site.start()
            self.port = runner.addresses[0][1]
            self.ready.set()
            await self._tls.run()
        finally:
            self.ready.clear()
            await runner.cleanup()

    async def _go_away(self, _: web.Application) -> None:
        for socket in list(self._open):
            try:
                async with asyncio.timeout(CLOSE_SECONDS):
                    await socket.close(code=streams.CLOSE_GOING_AWAY, message=b"virt-handler is stopping: dial again")
            except TimeoutError:
                continue

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        try:
            name = peers.common_name(request.transport)
            if name != CLIENT:
                raise errors.Forbidden(f"only {CLIENT} may open streams; this is the certificate of {name!r}")
            if request.method == "POST":
                return await self._act(request)
            target = self._target(request)
            if self._reads is not None and request.match_info["stream"] in self._reads.checks:
                return await self._read(self._reads, request, target)
            return await self._stream(request, target)
        except errors.StatusError as error:
            retry = error.details.retry_after_seconds
            return web.json_response(error.to_json(), status=error.code, headers={"Retry-After": str(retry)} if retry else None)

    async def _act(self, request: web.Request) -> web.Response:
        info, machine = request.match_info, _machine(request)
        if self._set_password is None or info["stream"] != password.NAME:
            raise errors.NotFound(f"virt-handler does not serve the verb {info['stream']!r}")
        target = self._found(request)
        try:
            given = password.of(await request.json())
        except ValueError as error:
            why = "it is not JSON" if isinstance(error, UnicodeDecodeError | json.JSONDecodeError) else str(error)
            raise errors.BadRequest(f"the body is invalid: {why}") from None  # the cause quotes the body
        try:
            with self._waiting.one(info["uid"], password.NAME):
                await self._set_password(target.pod_uid, given)
        except errors.StatusError as error:
            error.message = f"{password.NAME} of virtual machine {machine}: {error.message}"
            raise
        return web.json_response({})

    def _target(self, request: web.Request) -> Target:
        stream = request.match_info["stream"]
        if stream not in STREAMS and streams.forward_of(stream) is None and (self._reads is None or stream not in self._reads.checks):
            raise errors.NotFound(f"a virtual machine has no stream {stream!r}")
        return self._found(request)

    def _found(self, request: web.Request) -> Target:
        stream, machine = request.match_info["stream"], _machine(request)
        target = self._lookup(machine, request.match_info["uid"])
        if target is None:
            raise errors.NotFound(f"virtual machine {machine} is not on this node")
        if target.problem:
            raise errors.BadRequest(f"{stream} of virtual machine {machine}: {target.problem}")
        return target

    async def _read(self, reads: Reading, request: web.Request, target: Target) -> web.Response:
        info = request.match_info
        what, machine = info["stream"], _machine(request)
        try:
            return web.json_response(await reading.read(reads, self._waiting, target.pod_uid, info["uid"], what))
        except errors.StatusError as error:
            error.message = f"{what} of virtual machine {machine}: {error.message}"
            raise

    async def _stream(self, request: web.Request, target: Target) -> web.WebSocketResponse:
        info = request.match_info
        stream, machine = info["stream"], _machine(request)
        socket = web.WebSocketResponse(
            protocols=(streams.SUBPROTOCOL,),
            heartbeat=streams.PING_SECONDS,
            max_msg_size=pipe.MAX_MESSAGE_BYTES + 1,  # aiohttp refuses messages of exactly this size as well
            compress=False,
        )
        asked = socket.can_prepare(request)
        if not asked.ok or asked.protocol != streams.SUBPROTOCOL:
            raise errors.BadRequest(f"{stream} requires a WebSocket with the subprotocol {streams.SUBPROTOCOL}")
        forward, holder = streams.forward_of(stream), request.headers.get(streams.HOLDER_HEADER, "")
        if forward is not None:
            with self._counted.one(Wanted(machine, info["uid"], forward.kind, holder, streams.limit_factor(forward.kind))):
                return await self._forwarded(request, socket, target, forward)
        kind = stream.removesuffix("-follow").rstrip("0123456789")  # all ports or slots of a machine share one limit
        wanted = Wanted(machine, info["uid"], kind, holder, streams.limit_factor(kind))
        exists = partial(self._exists, target.pod_uid)
        with self._counted.one(wanted), self._slots.one(machine, info["uid"], stream, exists) as chosen:
            return await self._joined(request, socket, target, chosen)

    async def _joined(self, request: web.Request, socket: web.WebSocketResponse, target: Target, stream: str) -> web.WebSocketResponse:
        reader, writer = await self._dial(target.pod_uid, stream, _machine(request))
        channel = Channel() if stream == "spice" else None
        guard = Packets() if stream.startswith(streams.usbredir()) else channel
        is_log = SOCKETS[stream].startswith("log")
        if is_log and not stream.endswith("-follow"):
            writer.write_eof()
        try:
            if is_log:
                return await self._served(request, socket, lambda: pipe.output(socket, reader, writer))
            return await self._served(request, socket, lambda: pipe.run(socket, reader, writer, guard))
        finally:
            if channel is not None:
                await pipe.settle(channel, reader, writer)
            writer.close()

    async def _forwarded(
        self, request: web.Request, socket: web.WebSocketResponse, target: Target, forward: streams.Forward
    ) -> web.WebSocketResponse:
        machine, uid = _machine(request), request.match_info["uid"]
        if target.addresses is None:
            raise errors.ServiceUnavailable("virt-handler does not know the guest's address yet", errors.Details(retry_after_seconds=1))
        try:
            port = await forwarding.connect(target.addresses, forward, self._make_socket)
        except forwarding.Unanswered as error:
            what = f"{forward.protocol.upper()} port {forward.port} of virtual machine {machine}"
            raise errors.BadRequest(f"{what} does not answer: {error}") from error

        def has_left() -> bool:
            now = self._lookup(machine, uid)
            return now is None or bool(now.problem) or now.pod_uid != target.pod_uid

        if forward.protocol == "udp":
            with port:
                return await self._served(request, socket, lambda: pipe.datagrams(socket, port, has_left))
        reader, writer = await forwarding.tcp(port)
        try:
            return await self._served(request, socket, lambda: pipe.connection(socket, reader, writer, has_left))
        finally:
            writer.close()

    async def _served(
        self, request: web.Request, socket: web.WebSocketResponse, copy: Callable[[], Awaitable[pipe.Close | None]]
    ) -> web.WebSocketResponse:
        try:
            await socket.prepare(request)
            if request.transport is not None:
                request.transport.set_write_buffer_limits(high=pipe.CHUNK_BYTES)  # TLS defaults to 512 KiB
                buffers.narrow(request.transport, pipe.CHUNK_BYTES)
            self._open.add(socket)
            close = await copy()
            if close is not None:
                after = self._lookup(_machine(request), request.match_info["uid"])
                if close.code == streams.CLOSE_NORMAL and (after is None or after.moving):
                    close = pipe.Close(streams.CLOSE_GOING_AWAY, "the guest moved to another node; connect again")
                await socket.close(code=close.code, message=close.reason.encode()[:123])
            return socket
        finally:
            self._open.discard(socket)

    def _exists(self, pod_uid: str, stream: str) -> bool:
        try:
            with places.run_directory(pod_uid, self._kubelet) as directory:
                return places.has_socket(directory, SOCKETS[stream])
        except OSError:
            return False

    async def _dial(self, pod_uid: str, stream: str, machine: NamespacedName) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            with places.run_directory(pod_uid, self._kubelet) as directory:
                link = places.connect(directory, SOCKETS[stream])
            return await asyncio.open_unix_connection(sock=link, limit=pipe.AHEAD_BYTES)
        except FileNotFoundError as error:
            raise errors.BadRequest(f"virtual machine {machine} has no {stream} now") from error
        except OSError as error:
            raise errors.BadRequest(f"{stream} of virtual machine {machine} does not answer: {error.strerror or error}") from error


def _machine(request: web.Request) -> NamespacedName:
    return NamespacedName(request.match_info["namespace"], request.match_info["name"])
