"""Runs commands in the guest through its agent, one at a time.

The agent cannot kill a command, so one that outlasts its time keeps others from starting until it ends.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final

from apiserver.apis.meta.lines import one_line
from launcher.hypervisor.port import AgentRefused
from launcher.main.agent import processes
from launcher.main.agent.agent import Agent
from launcher.main.agent.processes import Ask
from launcher.main.decisions import agent_answers, requests
from launcher.main.decisions.refusal import RequestRefused
from launcher.main.decisions.times import TIMES, Times

EXEC: Final = "guest-exec"
BUSY: Final = "an earlier command still runs in the guest"
MAX_OUTPUT: Final = 1024
"""Decoded characters of base64 output."""
MAX_TOLD: Final = 160


class Commands:
    """Runs commands in the guest, one at a time."""

    def __init__(self, agent: Agent, times: Times = TIMES) -> None:
        self._agent = agent
        self._times = times
        self._one = asyncio.Lock()
        self._left: int | None = None
        """Process ID of a command that did not end in time."""

    async def run(self, command: Sequence[str], seconds: float, *, anyway: bool = False) -> None:
        """Run a command in the guest until it ends; ``anyway``: also while the guest shuts down, or is frozen.

        Raises RequestRefused, also if it fails, or after ``seconds``: then it runs on, and keeps others from starting.
        """

        async def ask(name: str, arguments: Mapping[str, Any]) -> object:
            return await self._agent.do(name, arguments, anyway=anyway)

        async with self._one:
            with requests.errors_refused():
                await self._require_none_left(ask)
                pid = await _begun(ask, command)
                self._left = pid
                found = await processes.report(ask, pid, seconds, self._times.exec_look)
            if found is None:
                raise RequestRefused("Failed", f"{command[0]} has not ended within {seconds:.0f} s")
            self._left = None
        if why := _failure(found):
            raise RequestRefused("Failed", f"{command[0]} {why}")

    async def _require_none_left(self, ask: Ask) -> None:
        if self._left is None:
            return
        try:
            if await processes.report(ask, self._left, 0, self._times.exec_look) is None:
                raise RequestRefused("Failed", BUSY)
        except AgentRefused:
            pass  # another agent, which does not know it
        self._left = None


async def _begun(ask: Ask, command: Sequence[str]) -> int:
    path, *arguments = command
    pid = agent_answers.members(await ask(EXEC, {"path": path, "arg": arguments, "capture-output": True})).get("pid")
    if type(pid) is not int:
        raise RequestRefused("Failed", f"{path}: the guest agent returned no process ID")
    return pid


def _failure(found: Mapping[str, Any]) -> str:
    code = found.get("exitcode")
    if code == 0 and type(code) is int:
        return ""
    ended = f"failed with exit code {code}" if type(code) is int and 0 < code < 256 else "was ended by a signal"
    said = one_line(_decoded(found.get("err-data")) or _decoded(found.get("out-data")), MAX_TOLD)
    return f"{ended}: {said}" if said else ended


def _decoded(data: object) -> str:
    try:
        return base64.b64decode(data[:MAX_OUTPUT], validate=False).decode(errors="replace").strip() if isinstance(data, str) else ""
    except ValueError:  # binascii.Error, or non-ASCII text
        return ""
