from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import aiohttp

from apiserver.server import dev
from tests.ports import free_port
from tests.testbed import build

INFORMERS: Final = build.GoProgram("informers", "0.36.3", (".",), module="tests/faults/go/informers")
STARTING_SECONDS: Final = 180.0
STOPPING_SECONDS: Final = 60.0
ANSWER_SECONDS: Final = 60.0
LINE: Final = 64 << 20
DETECTORS: Final = {"KUBE_WATCHLIST_INCONSISTENCY_DETECTOR": "true", "KUBE_CACHE_MUTATION_DETECTOR": "true"}


class Server:
    def __init__(self, paths: dev.Paths, etcd: str, session: aiohttp.ClientSession) -> None:
        self.port = free_port()
        self.log = paths.directory / "server.log"
        self._session = session
        self._command = [sys.executable, "-m", "apiserver.server", *dev.server_arguments(paths, self.port, etcd)]
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    async def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(*self._command, stdout=log, stderr=log)
        async with asyncio.timeout(STARTING_SECONDS):
            while not await self._ready():
                assert self._process.returncode is None, f"virt-api ended; see {self.log}"
                await asyncio.sleep(0.1)

    async def _ready(self) -> bool:
        try:
            async with self._session.get(f"{self.url}/readyz") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    async def end(self, number: signal.Signals) -> None:
        if self._process is None or self._process.returncode is not None:
            return
        self._process.send_signal(number)
        async with asyncio.timeout(STOPPING_SECONDS):
            code = await self._process.wait()
        assert number == signal.SIGKILL or code == 0, f"virt-api ended with {code} at {number.name}; see {self.log}"

    def tracebacks(self) -> str:
        text = self.log.read_text(errors="replace")
        at = text.find("Traceback")
        return text[max(at - 1000, 0) : at + 4000] if at >= 0 else ""


class Informers:
    def __init__(self, name: str, directory: Path, *, watch_list: bool, detectors: bool) -> None:
        self.name = name
        self.log = directory / f"informers-{name}.log"
        self._environment = {"KUBE_FEATURE_WatchListClient": str(watch_list).lower(), **(DETECTORS if detectors else {})}
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, *arguments: str) -> None:
        environment = {**os.environ, **self._environment}
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                str(INFORMERS.binary()), *arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment, limit=LINE
            )

    async def dump(self) -> dict[str, Any]:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"dump\n")
        async with asyncio.timeout(ANSWER_SECONDS):
            line = await process.stdout.readline()
        assert line, f"the informers ended: {self.log.read_text(errors='replace')[-4000:]}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def end(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
