"""Builds and runs the load generator; one call is one sample."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.api.operations import Operation
from benchmarks.api.payloads import Kind
from tests.reference_server.certificates import FRONT_PROXY, USER
from tests.reference_server.environment import Environment
from tests.reference_server.servers import Server
from tests.testbed import build

LOADGEN: Final = build.GoProgram("loadgen", "1", (".",), module="benchmarks/api/loadgen")
SECONDS: Final = 300


class SampleFailed(Exception):
    """A sample could not be taken, or is invalid; the message says why."""


def load(here: Environment, kind: Kind, operation: Operation, user: str) -> list[str]:
    made = here.certificates
    template, patch = kind.write(here.directory / "payloads")
    shown = FRONT_PROXY if operation.varied else user
    return [
        f"-ca={made.authority}",
        f"-cert={made.certificate(shown)}",
        f"-key={made.key(shown)}",
        f"-path={kind.collection(operation.namespace)}",
        f"-template={template}",
        f"-patch={patch}",
        *operation.flags,
    ]


@dataclass(frozen=True)
class Generator:
    """The load generator on its own processors."""

    cpus: frozenset[int]

    def run(self, server: Server, kind: Kind, operation: Operation, *more: str, user: str = USER, port: int = 0) -> dict[str, Any]:
        """Run an operation against a server, or its proxy at ``port``; return the sample. ``more``: further flags. Raises SampleFailed."""
        here = server.here
        watched = {"server": server.pid, "etcd": here.etcd.pid}
        if here.kubernetes is not None:
            watched["kube-apiserver"] = here.kubernetes.pid
        command = [
            str(LOADGEN.binary()),
            f"-server=https://127.0.0.1:{port or server.port}",
            f"-pid={','.join(f'{name}={pid}' for name, pid in watched.items())}",
            *load(here, kind, operation, user),
            *more,
        ]
        return self._run(command)

    def _run(self, command: Sequence[str]) -> dict[str, Any]:
        before = os.sched_getaffinity(0)
        try:
            if self.cpus:
                os.sched_setaffinity(0, self.cpus)
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        finally:
            os.sched_setaffinity(0, before)
        try:
            out, err = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise SampleFailed(f"no sample within {SECONDS} s") from None
        if process.returncode != 0:
            raise SampleFailed(err.strip())
        sample: dict[str, Any] = json.loads(out)
        return sample
