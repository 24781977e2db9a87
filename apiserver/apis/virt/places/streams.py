"""Streams: paths and sub-protocol names shared by virt-api, virt-handler and the kubectl plugin.

A client opens ``…/namespaces/NS/virtualmachines/NAME/console`` at kube-apiserver as a websocket (RFC 6455). virt-api answers errors as
``Status`` objects before the upgrade, then connects to virt-handler of the VM's node at :func:`handler_path` over mTLS and copies binary
messages both ways. The reason of a websocket close has at most 123 bytes (RFC 6455, 5.5).
"""

from __future__ import annotations

from typing import Final, Literal
from urllib.parse import quote

Stream = Literal["console", "vnc", "usbredir"]

SUBPROTOCOL: Final = "plain.kubevirt.io"
"""Raw bytes of the serial port, RFB or usbredir in binary messages; KubeVirt's virtctl uses the same name."""

HOLDER_HEADER: Final = "X-Kubevirt-Stream-Holder"
"""virt-api's token for the user, by which virt-handler groups streams. It reveals nothing else about the user."""

HANDLER_PORT: Final = 8444
RELAY_PORT: Final = 8445
PING_SECONDS: Final = 20.0
"""Interval of pings: well under the 60 s after which common load balancers drop idle connections."""

CLOSE_GOING_AWAY: Final = 1001
"""The server is stopping: reconnect."""
CLOSE_NORMAL: Final = 1000
"""The guest is off, or the peer requested the end."""
CLOSE_POLICY_VIOLATION: Final = 1008
"""The right to the stream was withdrawn: reconnecting is useless."""


def console(port: int) -> str:
    """Return the stream name of a serial port, counted from 0, between virt-api and virt-handler."""
    return "console" if port == 0 else f"console{port}"


def usbredir(slot: int | None = None) -> str:
    """Return the stream name of a slot for a USB device, counted from 0; None: any free slot."""
    return "usbredir" if slot is None else f"usbredir{slot}"


def handler_path(namespace: str, name: str, uid: str, stream: str) -> str:
    """Return virt-handler's path for a stream or text (``noderead``) of a machine.

    ``uid`` excludes other machines of the same name.
    """
    return f"/v1/namespaces/{quote(namespace, safe='')}/virtualmachines/{quote(name, safe='')}/{quote(uid, safe='')}/{stream}"
