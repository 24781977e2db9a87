"""Runs the administrator's fence agent, an executable that switches a node off (docs/fencing.md).

The agent reads one JSON object from standard input, and prints another one. Only ``{"version": "1.0.0", "state": "off"}`` with status 0
means that the node was without power after the call began. Every other outcome says nothing about the node.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from pathlib import Path
from typing import Final, Protocol

from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.objects import Object, annotations_of, dig, labels_of, name_of, uid_of

VERSION: Final = "1.0.0"
MAX_OUTPUT: Final = 64 << 10
MAX_WORDS: Final = 512
_GONE_SECONDS: Final = 5.0
_ENVIRONMENT: Final = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}


class Failed(Exception):
    """The agent did not prove that the node is off; the message is for administrators."""


class Agent(Protocol):
    """Switches nodes off."""

    @property
    def name(self) -> str:
        """Return the agent's name for messages."""

    async def switch_off(self, node: Object) -> None:
        """Switch the node off; return once that is proved. May be repeated.

        Raises:
            Failed: it is not proved that the node is off.
        """


class Executable:
    """A fence agent that is an executable file; a call may take at most ``seconds``."""

    def __init__(self, path: Path, seconds: float) -> None:
        self._path = path
        self._seconds = seconds

    @property
    def name(self) -> str:
        """Return the file's name."""
        return self._path.name

    async def switch_off(self, node: Object) -> None:
        """Run the file, then kill its process group."""
        child = await self._started()
        try:
            async with asyncio.timeout(self._seconds):
                status, output, errors = await _talk(child, request(node))
        except TimeoutError as error:
            raise Failed(f"no answer within {self._seconds:g} s") from error
        finally:
            await _end(child)
        check(status, output, errors)

    async def _started(self) -> asyncio.subprocess.Process:
        """Start the file. Raises Failed. A cancelled start leaves no process."""
        starting = asyncio.ensure_future(  # noqa: TID251  # it is awaited below
            asyncio.create_subprocess_exec(
                self._path,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=_ENVIRONMENT,
                cwd="/",
                start_new_session=True,
                limit=MAX_OUTPUT,
            )
        )
        try:
            return await asyncio.shield(starting)
        except OSError as error:
            raise Failed(f"cannot run {self._path}: {error.strerror}") from error
        except asyncio.CancelledError:
            with contextlib.suppress(OSError):
                await _end(await starting)
            raise


async def _talk(child: asyncio.subprocess.Process, document: bytes) -> tuple[int, bytes, bytes]:
    stdin, stdout, stderr = child.stdin, child.stdout, child.stderr
    assert stdin is not None and stdout is not None and stderr is not None  # noqa: S101, PT018 - pipes were asked for
    stdin.write(document)
    with contextlib.suppress(ConnectionError):
        await stdin.drain()
    stdin.close()
    async with asyncio.TaskGroup() as reading:
        outputs = [reading.create_task(_read(each)) for each in (stdout, stderr)]
    output, errors = (each.result() for each in outputs)
    return await child.wait(), output, errors


async def _end(child: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_GONE_SECONDS):
            await child.communicate()


async def _read(pipe: asyncio.StreamReader) -> bytes:
    kept = bytearray()
    while chunk := await pipe.read(MAX_OUTPUT):
        kept += chunk[: MAX_OUTPUT + 1 - len(kept)]
    return bytes(kept)


def request(node: Object) -> bytes:
    """Return the JSON request to switch this node off."""
    described = {
        "name": name_of(node),
        "uid": uid_of(node),
        "labels": dict(labels_of(node)),
        "annotations": dict(annotations_of(node)),
        "addresses": dig(node, "status", "addresses") or [],
        "providerID": dig(node, "spec", "providerID") or "",
        "bootID": dig(node, "status", "nodeInfo", "bootID") or "",
    }
    return f"{json.dumps({'version': VERSION, 'command': 'OFF', 'node': described})}\n".encode()


def check(status: int, output: bytes, errors: bytes = b"") -> None:
    """Raise Failed unless the agent's exit status and output prove that the node is off. The message has words from ``errors``."""
    if len(output) > MAX_OUTPUT:
        raise Failed(f"it wrote more than {MAX_OUTPUT >> 10} KiB")
    try:
        answer = json.loads(output)
    except (ValueError, RecursionError):
        answer = None
    if status == 0 and answer == {"version": VERSION, "state": "off"}:
        return
    said = answer.get("msg") if isinstance(answer, dict) else None
    words = one_line(str(said or errors.decode(errors="replace").strip() or output.decode(errors="replace").strip()), MAX_WORDS)
    raise Failed(f"exit status {status}{f': {words}' if words else ', without a message'}")
