"""QEMU with the tiny kernel, without libvirt."""

from __future__ import annotations

import json
import os
import re
import select
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.given_time import LOOK_SECONDS, Deadline, processor_seconds
from tests.host.launcher import guest
from tests.host.launcher.sandbox import wait_for
from tests.testbed import emulator

SECONDS: Final = 50.0
MEBIBYTES: Final = 64
PROMPT: Final = "# "


class TinyQemu:
    def __init__(self, process: subprocess.Popen[bytes], monitor: socket.socket) -> None:
        self.process = process
        self._monitor = monitor.makefile("rwb")
        self._seen = ""
        self.events: list[str] = []
        json.loads(self._monitor.readline())
        self.execute("qmp_capabilities")

    def execute(self, command: str, **arguments: Any) -> Any:
        self._monitor.write(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
        self._monitor.flush()
        while "return" not in (answer := self._next()):
            assert "error" not in answer, answer
        return answer["return"]

    def until_event(self, name: str) -> None:
        while name not in self.events:
            self._next()

    def _next(self) -> dict[str, Any]:
        line = self._monitor.readline()
        assert line, f"QEMU ended; the guest said {self._seen!r}"
        message: dict[str, Any] = json.loads(line)
        if "event" in message:
            self.events.append(message["event"])
        return message

    def expect(self, pattern: str) -> str:
        assert self.process.stdout is not None
        deadline = Deadline(SECONDS, lambda: (self.process.pid,))
        while not (found := re.search(pattern, self._seen)):
            assert not deadline.is_over, f"{pattern!r} not seen in {self._seen!r}"
            if not select.select([self.process.stdout], [], [], LOOK_SECONDS)[0]:
                continue
            data = os.read(self.process.stdout.fileno(), 65536)
            assert data, f"QEMU ended; {pattern!r} not seen in {self._seen!r}"
            self._seen += data.decode().replace("\r", "")
        before, self._seen = self._seen[: found.end()], self._seen[found.end() :]
        return before

    def type(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()

    def ask(self, line: str) -> str:
        self.type(line)
        return self.expect(PROMPT).removesuffix(PROMPT).strip()

    def wait(self) -> int:
        wait_for(lambda: self.process.poll() is not None, SECONDS, "QEMU's end")
        return self.process.wait()

    def processor_seconds(self) -> float:
        seconds = processor_seconds(self.process.pid)
        assert seconds is not None
        return seconds


@contextmanager
def running(directory: Path, arguments: str = "", options: Sequence[str] = (), *, machine: str = "q35") -> Iterator[TinyQemu]:
    path = directory / f"monitor{len(list(directory.iterdir()))}"
    command = [
        emulator.PROGRAM, "-no-user-config", "-nodefaults", "-display", "none", "-machine", machine, "-accel", "tcg,tb-size=64",
        "-m", f"size={(MEBIBYTES << 10) + (emulator.MORE_BYTES >> 10)}k", "-kernel", str(guest.tiny_kernel()), "-append", arguments,
        "-serial", "stdio", "-qmp", f"unix:{path},server=on,wait=off", *options,
    ]  # fmt: skip
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process, socket.socket(socket.AF_UNIX) as monitor:
        try:
            monitor.settimeout(SECONDS)
            wait_for(lambda: monitor.connect_ex(str(path)) == 0, SECONDS, "QEMU")
            yield TinyQemu(process, monitor)
        finally:
            process.kill()
