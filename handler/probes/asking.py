"""Runs one probe of a guest, over the network or by its agent.

A privileged process reads the answer. So it reads at most one line of limited length, follows no redirects, and decompresses and decrypts
nothing.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import Callable
from typing import Final, Protocol

from apiserver.apis.meta.lines import one_line
from apiserver.apis.virt.spec import probes
from apiserver.apis.virt.spec.probes import Probe
from handler.pods.launcher import Connection, Disconnected, LauncherRefused, Pending
from handler.probes.tally import Outcome
from launcher.protocol import messages

MAX_LINE: Final = 1024
MAX_MESSAGE: Final = 256
EXEC_SECONDS: Final = 1.0
_STATUS_LINE: Final = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?: [^\r\n]*)?\r?\n")
_NOBODY: Final = Outcome(None)

MakeSocket = Callable[[socket.AddressFamily], socket.socket]
"""Makes a TCP socket of the node's network. Raises OSError."""


class Link(Protocol):
    """A link to a launcher, as probes need it."""

    @property
    def connection(self) -> Connection | None:
        """The connection to the launcher; None while there is none."""
        ...


class Question:
    """A probe of one guest, for repeated use."""

    def __init__(self, probe: Probe, address: str, make_socket: MakeSocket) -> None:
        self._probe = probe
        self._address = address
        self._make_socket = make_socket
        self._ping: Pending | None = None

    async def ask(self, link: Link) -> Outcome:
        """Probe the guest once; return the Outcome."""
        if self._probe.handler not in probes.OVER_NETWORK:
            return await self._ask_agent(link.connection)
        if not self._address:
            return _NOBODY
        try:
            made = self._make_socket(socket.AF_INET6 if ":" in self._address else socket.AF_INET)
        except OSError:
            return _NOBODY
        try:
            async with asyncio.timeout(self._probe.timeout_seconds):
                return await self._connect(made)
        except TimeoutError:
            return self._failed(f"no answer within {self._probe.timeout_seconds} s")
        except OSError as error:
            return self._failed(os.strerror(error.errno) if error.errno else type(error).__name__)
        finally:
            made.close()

    async def _connect(self, made: socket.socket) -> Outcome:
        made.settimeout(0)
        await asyncio.get_running_loop().sock_connect(made, (self._address, self._probe.port))
        if self._probe.handler == probes.TCP:
            return Outcome(succeeded=True)
        reader, writer = await asyncio.open_connection(sock=made.dup(), limit=MAX_LINE)
        try:
            writer.write(request(self._probe, self._address))
            try:
                line = await reader.readline()
            except ValueError:  # longer than the limit
                line = b""
        finally:
            writer.transport.abort()
        found = _STATUS_LINE.fullmatch(line)
        if found is None:
            return self._failed("the response is not HTTP")
        status = int(found[1])
        return Outcome(succeeded=True) if 200 <= status < 400 else self._failed(f"HTTP status {status}")

    async def _ask_agent(self, connection: Connection | None) -> Outcome:
        if connection is None or not self._is_possible(connection):
            return _NOBODY  # its virt-launcher does not support it, or is disconnected; the guest may still run
        pending, self._ping = self._ping, None
        try:
            if pending is None or pending.connection is not connection:
                pending = connection.begin(self._request())
            if await pending.answered(within=self._probe.timeout_seconds + self._more_seconds):
                return Outcome(succeeded=True)
        except LauncherRefused as refused:
            return self._failed(one_line(str(refused), MAX_MESSAGE))
        except Disconnected:
            return _NOBODY
        self._ping = pending  # one request at a time: its answer serves the next probe
        return self._failed(f"no answer within {self._probe.timeout_seconds} s")

    def _is_possible(self, connection: Connection) -> bool:
        if self._probe.handler == probes.EXEC:
            return connection.knows(messages.Execute) and not connection.status.frozen  # a frozen agent runs no commands
        return connection.tells(probes.PING)

    def _request(self) -> messages.Request:
        if self._probe.handler == probes.EXEC:
            return messages.Execute(self._probe.command, self._probe.timeout_seconds)
        return messages.Read(probes.PING)

    @property
    def _more_seconds(self) -> float:
        """Seconds after the probe's timeout for virt-launcher's report of a command that does not end; else 0."""
        return EXEC_SECONDS if self._probe.handler == probes.EXEC else 0.0

    def _failed(self, why: str) -> Outcome:
        return Outcome(succeeded=False, message=f"{description(self._probe)}: {why}")


def request(probe: Probe, address: str) -> bytes:
    """Return the HTTP request of a probe; its headers replace ours of the same name."""
    named = {name.lower() for name, _ in probe.headers}
    own = {"Host": f"{f'[{address}]' if ':' in address else address}:{probe.port}", "User-Agent": "kube-probe/kubevirt", "Accept": "*/*"}
    fields = [*((name, value) for name, value in own.items() if name.lower() not in named), *probe.headers, ("Connection", "close")]
    return "".join((f"GET {probe.path} HTTP/1.1\r\n", *(f"{name}: {value}\r\n" for name, value in fields), "\r\n")).encode(
        "ascii", "replace"
    )


def description(probe: Probe) -> str:
    """Return a description of the probe for users."""
    match probe.handler:
        case probes.HTTP:
            return f"GET {one_line(probe.path, 64)} at port {probe.port}"
        case probes.TCP:
            return f"connection to port {probe.port}"
        case probes.EXEC:
            return "command in the guest"
        case _:
            return "guest agent"
