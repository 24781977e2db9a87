"""Programs next to a test or benchmark: started on chosen processors, ended reliably."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import ssl
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.reference_server.certificates import HOST, Certificates
from tests.testbed import layout

_GRACE_SECONDS: Final = 15.0


class ProgramFailed(Exception):
    """A program failed; the message has the end of its log."""


@dataclass
class Program:
    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            self.process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def failed(self, what: str) -> ProgramFailed:
        tail = self.log.read_text(errors="replace")[-3000:]
        return ProgramFailed(f"{self.name} {what}; the end of {self.log}:\n{tail}")


def start(
    name: str,
    arguments: Sequence[str | os.PathLike[str]],
    directory: Path,
    *,
    cpus: frozenset[int] = frozenset(),
    environment: Mapping[str, str] | None = None,
    working_directory: Path = layout.REPOSITORY,
) -> Program:
    directory.mkdir(parents=True, exist_ok=True)
    log = directory / f"{name}.log"
    before = os.sched_getaffinity(0)
    with log.open("ab") as output:
        try:
            if cpus:
                os.sched_setaffinity(0, cpus)  # a child inherits its starting thread's affinity
            process = subprocess.Popen(
                [os.fspath(each) for each in arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=working_directory,
                env={**os.environ, **(environment or {})},
                start_new_session=True,  # only we get an interrupt from the terminal
            )
        finally:
            os.sched_setaffinity(0, before)
    _prefer(process.pid)
    return Program(name, process, log)


def _prefer(pid: int) -> None:
    """Give the autogroup of ``pid``'s session our nice value."""
    with contextlib.suppress(OSError):  # no autogroups here, or not allowed
        Path(f"/proc/{pid}/autogroup").write_text(str(os.getpriority(os.PRIO_PROCESS, 0)))


def answers(url_port: int, path: str, certificates: Certificates, user: str) -> int:
    context = ssl.create_default_context(cafile=str(certificates.authority))
    context.load_cert_chain(certificates.certificate(user), certificates.key(user))
    connection = http.client.HTTPSConnection(HOST, url_port, context=context, timeout=10)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        response.read()
    except (OSError, http.client.HTTPException):
        return 0
    else:
        return response.status
    finally:
        connection.close()


def wait_until_ready(program: Program, port: int, certificates: Certificates, user: str, seconds: float = 120.0) -> float:
    began = time.monotonic()
    while answers(port, "/readyz", certificates, user) != http.client.OK:
        if program.process.poll() is not None:
            raise program.failed(f"ended with code {program.process.returncode}")
        if time.monotonic() - began > seconds:
            raise program.failed(f"is not ready after {seconds:.0f} s")
        time.sleep(0.02)
    return time.monotonic() - began
