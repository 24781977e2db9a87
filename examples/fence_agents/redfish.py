#!/usr/bin/python3
"""A fence agent that switches nodes off through the Redfish API of their management boards (docs/fencing.md).

Its data is the file nodes.json of the Secret:

    {"node1": {"system": "https://10.0.9.1/redfish/v1/Systems/1", "user": "fence", "password": "…", "powerOn": true}}

The Secret's optional file ca.crt has the authority of the boards' certificates; the default are the system's. With powerOn, the agent
switches the node on again once the board has reported that it is off.
"""

from __future__ import annotations

import base64
import json
import ssl
import sys
import time
import urllib.request
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final

SECRET: Final = Path(sys.argv[1] if len(sys.argv) > 1 else "/fence-agent-secret")
VERSION: Final = "1.0.0"
REQUEST_SECONDS: Final = 10.0
POLL_SECONDS: Final = 0.5


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, which could lead to another host or to plain HTTP."""

    def redirect_request(self, *_: object) -> None:
        """Return nothing, so a redirect counts as an error."""


class Board:
    """The management board of one node."""

    def __init__(self, data: dict[str, Any], tls: ssl.SSLContext) -> None:
        self._system = str(data["system"])
        self._opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=tls), NoRedirects)
        key = base64.b64encode(f"{data['user']}:{data['password']}".encode()).decode()
        self._headers = {"Authorization": f"Basic {key}", "Accept": "application/json", "Content-Type": "application/json"}

    def is_off(self) -> bool:
        """Return whether the board reports that the node is off."""
        return self._ask("").get("PowerState") == "Off"

    def reset(self, kind: str) -> None:
        """Ask the board for a change of power: ``ForceOff`` or ``On``."""
        self._ask("/Actions/ComputerSystem.Reset", json.dumps({"ResetType": kind}).encode())

    def _ask(self, path: str, body: bytes | None = None) -> dict[str, Any]:
        url = self._system + path
        if not url.startswith("https://"):
            raise ValueError(f"{url} does not begin with https://")
        asked = urllib.request.Request(url, body, self._headers)  # noqa: S310 - checked above
        with self._opener.open(asked, timeout=REQUEST_SECONDS) as answer:
            found = json.loads(answer.read(1 << 20) or b"{}")
        return found if isinstance(found, dict) else {}


def switch_off(board: Board, *, on_again: bool) -> None:
    """Switch the node off, wait until the board reports it, and if ``on_again`` switch it on. virt-controller limits the time.

    The node was off also if the board refuses to switch it on; then it stays off.
    """
    if not board.is_off():
        board.reset("ForceOff")
        while not board.is_off():
            time.sleep(POLL_SECONDS)
    if on_again:
        with suppress(OSError, ValueError, HTTPException):
            board.reset("On")


def main() -> int:
    """Answer virt-controller's request on standard input; return the exit status, 1 after an error."""
    asked = json.load(sys.stdin)
    try:
        if asked.get("version") != VERSION or asked.get("command") != "OFF":
            raise ValueError(f"unknown version or command: {asked.get('version')} {asked.get('command')}")
        name = asked["node"]["name"]
        data = json.loads((SECRET / "nodes.json").read_text()).get(name)
        if data is None:
            raise ValueError(f"nodes.json has no node {name}")
        authority = SECRET / "ca.crt"
        tls = ssl.create_default_context(cafile=str(authority) if authority.exists() else None)
        tls.verify_flags &= ~ssl.VERIFY_X509_STRICT  # since Python 3.13, this refuses authorities of `openssl req -x509`
        switch_off(Board(data, tls), on_again=bool(data.get("powerOn")))
    except (OSError, ValueError, KeyError) as error:
        print(json.dumps({"version": VERSION, "msg": f"{type(error).__name__}: {error}"}))
        return 1
    print(json.dumps({"version": VERSION, "state": "off"}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
