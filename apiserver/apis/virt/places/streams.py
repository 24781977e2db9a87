"""Streams: the paths and sub-protocol names that virt-api, virt-handler and the kubectl plugin agree on.

A client opens ``…/namespaces/NS/virtualmachines/NAME/console`` at kube-apiserver as a websocket (RFC 6455); virt-api answers errors as
``Status`` objects before it upgrades, then dials virt-handler of the VM's node at :func:`handler_path` over mTLS and copies binary
messages both ways. A websocket close carries a reason of at most 123 bytes (RFC 6455, 5.5).
"""

from __future__ import annotations

from typing import Final, Literal
from urllib.parse import quote

Stream = Literal["console", "vnc", "usbredir"]

SUBPROTOCOL: Final = "plain.kubevirt.io"
"""Raw bytes of the serial port, or of the protocol of RFB or usbredir, in binary messages; the name that KubeVirt's virtctl offers, too."""

HOLDER_HEADER: Final = "X-Kubevirt-Stream-Holder"
"""Virt-api tells virt-handler by it which streams are of the same user: a token that says nothing else of who that is."""

HANDLER_PORT: Final = 8444
RELAY_PORT: Final = 8445
PING_SECONDS: Final = 20.0
"""Idle connections are pinged this often: well under the 60 s after which common load balancers drop them."""

CLOSE_GOING_AWAY: Final = 1001
"""The process in between is stopping: dial again."""
CLOSE_NORMAL: Final = 1000
"""The guest is off, or the peer asked for the end."""
CLOSE_POLICY_VIOLATION: Final = 1008
"""The right to the stream was withdrawn: dialling again is of no use."""


def console(port: int) -> str:
    """Return the name of the stream of a serial port, counted from 0, between virt-api and virt-handler."""
    return "console" if port == 0 else f"console{port}"


def usbredir(slot: int | None = None) -> str:
    """Return the name of the stream of a slot for a USB device, counted from 0; None: of any slot that is free."""
    return "usbredir" if slot is None else f"usbredir{slot}"


def handler_path(namespace: str, name: str, uid: str, stream: str) -> str:
    """Return the path that virt-handler serves for one stream of one virtual machine, or for what can be read of it (``noderead``).

    ``uid`` keeps a namesake out.
    """
    return f"/v1/namespaces/{quote(namespace, safe='')}/virtualmachines/{quote(name, safe='')}/{quote(uid, safe='')}/{stream}"
