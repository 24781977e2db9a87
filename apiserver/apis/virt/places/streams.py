"""Streams: paths and sub-protocol names shared by virt-api, virt-handler and the kubectl plugin.

A client opens ``…/virtualmachines/NAME/console`` at kube-apiserver as a websocket. virt-api connects to the node's virt-handler at
:func:`handler_path` over mTLS and copies binary messages both ways. Ports and slots count from 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args
from urllib.parse import quote

Stream = Literal["console", "vnc", "spice", "usbredir", "portforward", "log"]
Protocol = Literal["tcp", "udp"]

SUBPROTOCOL: Final = "plain.kubevirt.io"
"""Raw bytes of the serial port, RFB, SPICE, usbredir or TCP; virtctl uses the same name.

A UDP message is a datagram. An empty message of a TCP client ends its direction.
"""

HOLDER_HEADER: Final = "X-Kubevirt-Stream-Holder"
"""virt-api's opaque token for the user, by which virt-handler groups streams."""

CONNECTIONS: Final = 4
"""``portforward`` and ``spice`` take a stream for each connection."""
_OF_CONNECTIONS: Final = frozenset({"portforward", "spice"})

HANDLER_PORT: Final = 8444
RELAY_PORT: Final = 8445
PING_SECONDS: Final = 20.0
"""Common load balancers drop idle connections after 60 s."""

CLOSE_GOING_AWAY: Final = 1001
"""The server is stopping: reconnect."""
CLOSE_NORMAL: Final = 1000
"""The guest is off, or the peer requested the end."""
CLOSE_POLICY_VIOLATION: Final = 1008
"""The right to the stream was withdrawn: reconnecting is useless."""


def limit_factor(kind: str) -> int:
    """Return by what a kind of stream multiplies the limits per machine: ``CONNECTIONS`` for portforward and spice, else 1."""
    return CONNECTIONS if kind in _OF_CONNECTIONS else 1


def console(port: int) -> str:
    """Return a serial port's stream name."""
    return "console" if port == 0 else f"console{port}"


def log(port: int, *, follow: bool) -> str:
    """Return the stream name of a serial port's output."""
    return f"log{port}-follow" if follow else f"log{port}"


def usbredir(slot: int | None = None) -> str:
    """Return the stream name of a slot for a USB device; None: any free slot."""
    return "usbredir" if slot is None else f"usbredir{slot}"


@dataclass(frozen=True, slots=True)
class Forward:
    """The port of a guest that a stream ``portforward`` connects to."""

    protocol: Protocol
    port: int

    @property
    def stream(self) -> str:
        """The stream's name between virt-api and virt-handler."""
        return f"portforward-{self.protocol}-{self.port}"

    @property
    def kind(self) -> str:
        """The kind of stream, which has limits: ``portforward``."""
        return "portforward"


def protocol_of(text: str) -> Protocol | None:
    """Return the text if it is ``tcp`` or ``udp``, else None."""
    return next((each for each in get_args(Protocol) if each == text), None)


def port_of(text: str) -> int | None:
    """Return the port, 1 to 65535, in a text of one to five ASCII digits, else None."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 5 and 0 < int(text) < 1 << 16 else None


def forward_of(stream: str) -> Forward | None:
    """Return the Forward for a stream's name; None for other streams."""
    name, _, rest = stream.partition("-")
    protocol, port = protocol_of(rest.partition("-")[0]), port_of(rest.partition("-")[2])
    return Forward(protocol, port) if name == "portforward" and protocol and port else None


def handler_path(namespace: str, name: str, uid: str, stream: str) -> str:
    """Return the URL path at virt-handler of a machine's stream or text (``noderead``).

    ``uid`` excludes other machines of the same name.
    """
    return f"/v1/namespaces/{quote(namespace, safe='')}/virtualmachines/{quote(name, safe='')}/{quote(uid, safe='')}/{stream}"
