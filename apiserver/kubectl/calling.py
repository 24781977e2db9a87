"""Run kubectl with the plugin's flags, for Kubernetes' own objects."""

from __future__ import annotations

import asyncio
import json
import os
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from apiserver.apis.meta.objects import Object
from apiserver.kubectl.access import Selection
from apiserver.kubectl.messages import Failure

PROGRAM: Final = "kubectl"


def flags(selection: Selection) -> tuple[str, ...]:
    """Return kubectl's flags for the same cluster and user, without the namespace."""
    given = {
        "--kubeconfig": selection.kubeconfig,
        "--context": selection.context,
        "--cluster": selection.cluster,
        "--user": selection.user,
        "--server": selection.server,
        "--token": selection.token,
        "--as": selection.impersonate_user,
        "--as-uid": selection.impersonate_uid,
    }
    groups = (f"--as-group={each}" for each in selection.impersonate_groups)
    return (*(f"{flag}={value}" for flag, value in given.items() if value), *groups)


class Kubectl:
    """Runs the program kubectl for one cluster, user and namespace."""

    def __init__(self, selection: Selection, namespace: str = "") -> None:
        """An empty ``namespace`` is for cluster-scoped objects."""
        self._command: Sequence[str] = (PROGRAM, *flags(selection), *((f"--namespace={namespace}",) if namespace else ()))

    async def __call__(self, *arguments: str, given: Object | None = None) -> str:
        """Run kubectl and return its standard output; ``given`` becomes its standard input, as JSON. Raises Failure."""
        stdin = json.dumps(given).encode() if given is not None else None
        async with self._started(*arguments, stdin=PIPE if stdin is not None else asyncio.subprocess.DEVNULL, stdout=PIPE) as process:
            output, errors = await process.communicate(stdin)
        if process.returncode:
            raise _failed(arguments, errors)
        return output.decode(errors="replace")

    async def get(self, kind: str, name: str) -> Object | None:
        """Return an object, or None if absent. Raises Failure."""
        found = await self("get", kind, name, "--output=json", "--ignore-not-found")
        return json.loads(found) if found.strip() else None

    async def pipe(self, first: Sequence[str], second: Sequence[str]) -> None:
        """Pipe the output of one kubectl process into another, and discard that one's output; raises Failure if either fails."""
        out, into = os.pipe()
        try:
            async with self._started(*first, stdout=into) as reader:
                os.close(into)
                into = -1
                async with self._started(*second, stdin=out, stdout=asyncio.subprocess.DEVNULL) as writer:
                    os.close(out)
                    out = -1
                    async with asyncio.TaskGroup() as tasks:
                        ends = [tasks.create_task(each.communicate()) for each in (reader, writer)]
        finally:
            for each in (out, into):
                if each >= 0:
                    os.close(each)
        for process, arguments, end in zip((reader, writer), (first, second), ends, strict=True):
            if process.returncode:
                raise _failed(arguments, end.result()[1])

    @asynccontextmanager
    async def _started(self, *arguments: str, stdin: int = asyncio.subprocess.DEVNULL, stdout: int = PIPE) -> AsyncIterator[Process]:
        try:
            process = await asyncio.create_subprocess_exec(*self._command, *arguments, stdin=stdin, stdout=stdout, stderr=PIPE)
        except FileNotFoundError as error:
            raise Failure(f"error: {PROGRAM} is not on PATH") from error
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


def _failed(arguments: Sequence[str], errors: bytes | None) -> Failure:
    words = (errors or b"").decode(errors="replace").strip() or "it gave no reason"
    return Failure(f"error: kubectl {' '.join(arguments[:3])}: {words}")
