"""Websockets to a machine's streams, and the reasons for their end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.typing import Subprotocol

from apiserver.apis.meta.errors import StatusError
from apiserver.apis.virt.places import streams
from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from apiserver.kubectl import messages
from apiserver.kubectl.access import Access
from apiserver.kubectl.verbs import refusal

OPEN_SECONDS: Final = 65.0
"""Slightly longer than kube-apiserver waits."""
MAX_MESSAGE_BYTES: Final = 1 << 20


class UpgradeFailed(Exception):
    """The server answered without a websocket: ``error`` is its answer, ``failure`` the text for the user."""

    def __init__(self, error: StatusError, doing: str) -> None:
        self.failure = messages.of_status(error, doing)
        super().__init__(str(self.failure))
        self.error = error


class Unreachable(Exception):
    """The server did not answer."""

    def __init__(self, failure: messages.Failure) -> None:
        super().__init__(str(failure))
        self.failure = failure


@dataclass(frozen=True, slots=True)
class End:
    """Reason for a websocket's end: close code and text."""

    code: int
    reason: str

    @property
    def wanted(self) -> bool:
        """True if connecting again is useless: the guest is off, or the peer closed normally."""
        return self.code == streams.CLOSE_NORMAL

    @property
    def refused(self) -> bool:
        """True if the user lost the right to the stream."""
        return self.code == streams.CLOSE_POLICY_VIOLATION

    def __str__(self) -> str:
        if reason := messages.said(self.reason):
            return reason
        return {
            1000: "the virtual machine is off",
            1001: "the server is stopping",
            1006: "the connection broke",
            1008: "your permission was revoked",
        }.get(self.code, f"code {self.code}")


class _Dial(connect):
    """Treats redirects as answers: credentials are only for the kubeconfig's server."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


def path(access: Access, name: str, stream: streams.Stream, forward: streams.Forward | None = None) -> str:
    """Return the path of a machine's stream; ``forward`` adds port and protocol, for ``portforward``."""
    found = VIRTUAL_MACHINES.path(access.namespace, name, stream)
    return f"{found}/{forward.port}/{forward.protocol}" if forward else found


@asynccontextmanager
async def opened(
    access: Access,
    name: str,
    stream: streams.Stream,
    query: Mapping[str, int | str] | None = None,
    *,
    forward: streams.Forward | None = None,
) -> AsyncIterator[ClientConnection]:
    """Yield an open websocket to a machine's stream; the peer's close raises ``websockets.ConnectionClosed`` inside.

    ``query``: parameters, such as a console's port; ``forward``: the port for ``portforward``. Raises UpgradeFailed
    with the server's answer, Unreachable without one.
    """
    what = f"{forward.protocol.upper()} port {forward.port}" if forward else stream
    doing = f"open the {what} of virtual machine {access.namespace}/{name}"
    url = "ws" + access.server.removeprefix("http") + path(access, name, stream, forward)
    if query:
        url += f"?{urlencode(query)}"
    hostname: dict[str, Any] = {"server_hostname": access.server_hostname} if access.server_hostname else {}
    try:
        connection = await _Dial(
            url,
            subprotocols=[Subprotocol(streams.SUBPROTOCOL)],
            additional_headers=list(access.headers),
            ssl=access.tls,
            proxy=access.proxy or True,
            compression=None,
            open_timeout=OPEN_SECONDS,
            close_timeout=2,
            ping_interval=streams.PING_SECONDS,
            ping_timeout=streams.PING_SECONDS,
            max_size=MAX_MESSAGE_BYTES,
            **hostname,
        )
    except InvalidStatus as error:
        raise UpgradeFailed(refusal(error.response.status_code, bytes(error.response.body or b"")), doing) from error
    except (OSError, TimeoutError, WebSocketException, EOFError, ValueError) as error:  # ValueError: a name that IDNA cannot encode
        raise Unreachable(messages.of_transport(error, access.server, doing)) from error
    async with connection:
        yield connection


def warnings_of(connection: ClientConnection) -> list[str]:
    """Return the lines to print for the upgrade's warnings."""
    return messages.of_warnings(connection.response.headers.get_all("Warning") if connection.response is not None else ())


def end_of(closed: ConnectionClosed) -> End:
    """Return the End that the peer sent; for a broken connection, code 1006."""
    received = closed.rcvd
    return End(received.code, received.reason) if received is not None else End(1006, "")
