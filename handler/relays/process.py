"""virt-handler's side of the relay process: starts it and gives it connections.

The process ends with virt-handler. If it crashes, its connections and their migrations fail, the guests stay where they are, and the next
connection starts a new process.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from apiserver.apis.meta import descriptors
from apiserver.apis.meta.lines import one_line
from certs import peers
from certs.reloading import Material

logger = logging.getLogger(__name__)

_PROGRAM: Final = "import sys; sys.path.append(sys.argv[2]); from handler.relays import program; program.main(int(sys.argv[1]))"
"""Without ``site``, to need only 9 to 12 MiB."""
_PACKAGES: Final = Path(__file__).parents[2]
USER_ID: Final = 60607
"""A dedicated uid, because processes that share a uid can ptrace each other."""
MAX_MESSAGE_BYTES: Final = 64 << 10
MAX_REASON: Final = 256
END_SECONDS: Final = 5.0
_OPTIONS: Final = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 60_000),
)
"""libvirt sends short messages. A dead node is detected within half a minute, or with unacknowledged data within a minute."""


class Connection:
    """One TLS connection in the relay process, for one call at a time."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self.transport = asyncio.BaseTransport()
        """Has the other side's certificate (``certs.peers``) after the handshake."""

    async def shaken(self) -> None:
        """Wait for the handshake's end. Raises OSError if it failed; the connection is over."""
        self.transport = asyncio.BaseTransport({peers.RELAYED: (await self._heard()).get("peer")})

    async def line(self, most: int) -> bytes:
        """Return the other side's first line, or at most ``most`` bytes of it. Raises OSError if the connection is over."""
        self._say({"read": most})
        return str((await self._heard()).get("line", "")).encode("latin-1")

    async def lead(self, pod: socket.socket, first: bytes = b"") -> str:
        """Send ``first`` to the other side, copy between it and a pod's socket until either ends, and return the reason.

        Closes our descriptor of the pod's socket. Raises OSError if the relay process is gone at the call; a later end is a reason.
        """
        with pod:
            self._say({"lead": first.decode("latin-1")}, pod)
        return await self._last_word()

    async def answer(self, line: bytes) -> None:
        """Send this line to the other side and disconnect. Raises OSError if the relay process is gone at the call."""
        self._say({"answer": line.decode("latin-1")})
        await self._last_word()

    def close(self) -> None:
        """Begin to end the connection: the relay process first delivers received data, for a limited time."""
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_WR)

    def abort(self) -> None:
        """End the connection at once."""
        with contextlib.suppress(OSError):
            self._channel.send(b'{"abort": true}')

    def _say(self, message: dict[str, Any], *given: socket.socket) -> None:
        socket.send_fds(self._channel, [json.dumps(message).encode()], [each.fileno() for each in given])

    async def _heard(self) -> dict[str, Any]:
        data = await asyncio.get_running_loop().sock_recv(self._channel, MAX_MESSAGE_BYTES)
        message = json.loads(data) if data else {"ended": "the relay process ended"}
        if "ended" in message:
            raise ConnectionError(one_line(str(message["ended"]), MAX_REASON))
        return dict(message)

    async def _last_word(self) -> str:
        try:
            await self._heard()
        except OSError as error:
            return str(error)
        return ""


class RelayProcess:
    """The process that copies migrations' data between TLS connections and pods, started when needed."""

    def __init__(self, python: str = sys.executable) -> None:
        self._python = python
        self.pid: int | None = None
        self._control: socket.socket | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._starting = asyncio.Lock()

    async def start(self) -> None:
        """Start the process unless it runs, so the first connection need not wait. Raises OSError."""
        async with self._starting:
            if self._control is None:
                await self._start()

    @asynccontextmanager
    async def connection(
        self, link: socket.socket, material: Material, server_name: str | None = None, protocol: str = ""
    ) -> AsyncIterator[Connection]:
        """Yield a TLS connection over ``link`` in the relay process until the context ends; await its ``shaken`` before other calls.

        Closes our descriptor of ``link``.

        We are its client if ``server_name``, which the server's certificate must have, is given, with ``protocol`` (ALPN); else its server.
        Raises OSError.
        """
        with link:
            for level, option, value in _OPTIONS:
                link.setsockopt(level, option, value)
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
            with theirs:
                theirs.settimeout(None)
                with descriptors.on_error(ours.close):
                    await self._give(link, theirs)
        with ours:
            order = {
                "server_name": server_name,
                "protocol": protocol,
                "certificate": material.certificate.decode(),
                "key": material.key.decode(),
                "authorities": material.authorities.decode(),
            }
            ours.send(json.dumps(order).encode())
            yield Connection(ours)

    async def _give(self, *links: socket.socket) -> None:
        async with self._starting:
            for is_fresh in (False, True):
                if is_fresh or self._control is None:
                    await self._start()
                assert self._control is not None  # noqa: S101 - just started
                try:
                    socket.send_fds(self._control, [b"{}"], [each.fileno() for each in links])
                except (BrokenPipeError, ConnectionResetError):
                    if is_fresh:
                        raise
                else:
                    return

    async def _start(self) -> None:
        await self.end()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        with theirs:
            ours.settimeout(0)
            user = USER_ID if os.geteuid() == 0 else 0
            with descriptors.on_error(ours.close):
                self._process = await asyncio.create_subprocess_exec(
                    self._python,
                    "-ISB",
                    "-c",
                    _PROGRAM,
                    str(user),
                    str(_PACKAGES),
                    stdin=theirs.fileno(),
                    stdout=asyncio.subprocess.DEVNULL,
                    cwd="/",
                    env={},
                )
        self._control, self.pid = ours, self._process.pid

    async def end(self) -> None:
        """End the process and its connections, and wait for it; kill it after ``END_SECONDS``."""
        control, process = self._control, self._process
        self._control = self._process = None
        if control is not None:
            control.close()
        if process is not None:
            try:
                async with asyncio.timeout(END_SECONDS):
                    await process.wait()
            except TimeoutError:
                logger.warning("the relay process did not end and is killed")
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
