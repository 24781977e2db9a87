"""``/livez``, ``/readyz`` and ``/healthz``: which part of the server is well, in the text that Go's server writes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from apiserver.endpoints import responses
from apiserver.endpoints.call import Call
from apiserver.endpoints.http import Response

Check = Callable[[], Awaitable[bool]]
_SECONDS: Final = 20.0
"""For checks that set no time for themselves."""


async def ping() -> bool:
    """Say that the loop runs."""
    return True


@dataclass(frozen=True, slots=True)
class Health:
    """One of the three paths and its checks, by name."""

    path: str
    checks: Mapping[str, Check]

    async def page(self, call: Call) -> Response:
        """Answer ``ok``, or 500 with what is not; ``?verbose`` names every check, ``?exclude=NAME`` leaves one out."""
        title = self.path.strip("/")
        excluded = set(call.request.query.getall("exclude", []))
        single = call.info.path.strip("/").removeprefix(title).strip("/")
        if single:
            check = self.checks.get(single)
            if check is None:
                return responses.plain(404, "404 page not found\n")
            return responses.plain(200, "ok") if await _passes(check) else responses.plain(500, f"internal server error: {single} failed\n")
        async with asyncio.TaskGroup() as tasks:
            running = {name: tasks.create_task(_passes(check)) for name, check in self.checks.items() if name not in excluded}
        results = {name: task.result() for name, task in running.items()}
        lines = [f"[+]{name} ok" if well else f"[-]{name} failed: reason withheld" for name, well in results.items()]
        lines += [f"[+]{name} excluded: ok" for name in sorted(excluded & self.checks.keys())]
        if not all(results.values()):
            return responses.plain(500, "\n".join([*lines, f"{title} check failed"]) + "\n")
        if "verbose" in call.request.query:
            return responses.plain(200, "\n".join([*lines, f"{title} check passed"]) + "\n")
        return responses.plain(200, "ok")


async def _passes(check: Check) -> bool:
    try:
        async with asyncio.timeout(_SECONDS):
            return await check()
    except TimeoutError:
        return False
