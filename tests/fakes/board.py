"""A management board with Redfish's power control of one system."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

PATH: Final = "/redfish/v1/Systems/1"
RESET: Final = f"{PATH}/Actions/ComputerSystem.Reset"


class Board:
    def __init__(self, off: Callable[[], None] = lambda: None, *, reads_until_off: int = 0) -> None:
        """The board calls ``off`` to end the system, and reports Off only after ``reads_until_off`` further reads."""
        self.power = "On"
        self.resets: list[str] = []
        self.reads = 0
        self.redirect = ""
        self.refused = ""
        """This kind of reset fails."""
        self._off = off
        self._reads_until_off = reads_until_off
        self._going_off = False

    def read(self) -> str:
        self.reads += 1
        if self._going_off:
            self._reads_until_off -= 1
            if self._reads_until_off < 0:
                self.power, self._going_off = "Off", False
        return self.power

    def reset(self, kind: str) -> None:
        self.resets.append(kind)
        if kind == "ForceOff":
            self._off()
            self._going_off = True
        else:
            self.power = "On"


@contextmanager
def serving(board: Board, certificate: Path, key: Path, password: str, address: str = "127.0.0.1") -> Iterator[str]:
    """Serve the board's Redfish; yield the URL of its system. The user is ``fence``."""
    expected = f"Basic {base64.b64encode(f'fence:{password}'.encode()).decode()}"

    class Handler(BaseHTTPRequestHandler):
        def _answer(self, status: int, body: dict[str, Any] | None = None) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body or {}).encode())

        def _refuses(self, path: str) -> bool:
            if self.headers["Authorization"] != expected:
                self._answer(401)
            elif board.redirect:
                self.send_response(302)
                self.send_header("Location", board.redirect)
                self.end_headers()
            elif self.path != path:
                self._answer(404)
            else:
                return False
            return True

        def do_GET(self) -> None:
            if not self._refuses(PATH):
                self._answer(200, {"@odata.id": PATH, "PowerState": board.read()})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self._refuses(RESET):
                return
            if body["ResetType"] == board.refused:
                self._answer(500)
            else:
                board.reset(body["ResetType"])
                self._answer(204)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the base class
            """Say nothing."""

    server = ThreadingHTTPServer((address, 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"https://{address}:{server.server_port}{PATH}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
