from __future__ import annotations

import re
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

READY_SECONDS = 30.0


@dataclass(frozen=True)
class Server:
    directory: Path
    host: str
    port: int
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        return f"https://{self.host}:{self.port}"

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")

    def tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.directory / "ca.crt"))
        context.load_cert_chain(self.directory / "client.crt", self.directory / "client.key")
        return context

    def failures(self) -> list[str]:
        bad = re.compile(r"Traceback|a request failed|Task exception|never retrieved|ERROR|CRITICAL")
        return [line for line in self.log.splitlines() if bad.search(line)]


@contextmanager
def serving(directory: Path) -> Iterator[Server]:
    directory.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "apiserver.server.dev", "--directory", str(directory), "--port", "0", "--log-level=info"]
    with (directory / "log").open("wb") as log, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"export KUBECONFIG"), (directory / "log").read_text()
        found = re.search(r'server: "https://([^:]+):(\d+)"', (directory / "kubeconfig").read_text())
        assert found
        server = Server(directory, found[1], int(found[2]), process)
        try:
            _wait(server)
            yield server
        finally:
            process.terminate()
            assert process.wait(30) == 0


def _wait(server: Server) -> None:
    import time
    import urllib.error
    import urllib.request

    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{server.url}/readyz", context=server.tls(), timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise AssertionError(server.log)
