"""``/livez``, ``/readyz`` and ``/healthz``, in the format of Go's server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from apiserver.endpoints import responses
from apiserver.endpoints.context import Page, RequestContext
from apiserver.endpoints.http.messages import Response
from apiserver.metrics.instruments import Counter, Gauge, Registry

TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
Check = Callable[[], Awaitable[bool]]
_SECONDS: Final = 20.0
"""Of checks without their own."""


async def ping() -> bool:
    """Return True, which proves that the loop runs."""
    return True


class Indicators:
    """Metrics of health checks' outcomes, and their page ``/metrics/slis``."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.last = Gauge("kubernetes_healthcheck", "Result of the last check: 1 is healthy.", ("name", "type"))
        self.total = Counter("kubernetes_healthchecks_total", "Checks by outcome.", ("name", "type", "status"))
        self.registry.add(self.last, self.total)

    def observe(self, name: str, title: str, *, well: bool) -> None:
        """Count a check's outcome in the metrics; ``title``: the page's path without slash, such as ``readyz``."""
        self.last.cell(name, title).value = int(well)
        self.total.increment(name, title, "success" if well else "error")

    async def page(self, context: RequestContext) -> Response:
        """Answer in Prometheus' text format."""
        del context
        return Response(body=self.registry.page(), content_type=TEXT)


@dataclass(frozen=True, slots=True)
class Health:
    """One of the paths ``/livez``, ``/readyz`` and ``/healthz``, and its checks by name."""

    path: str
    checks: Mapping[str, Check]
    indicators: Indicators

    def pages(self) -> dict[str, Page]:
        """Return the handlers by path: of all checks (``/readyz``), and of each below it."""
        return {self.path: self._all, **{f"{self.path}/{name}": partial(self._one, name) for name in self.checks}}

    async def _one(self, name: str, context: RequestContext) -> Response:
        del context
        well = await _passes(self.checks[name])
        return responses.plain(200, "ok") if well else responses.plain(500, f"internal server error: {name} failed\n")

    async def _all(self, context: RequestContext) -> Response:
        """Answer all checks: ``?verbose`` lists them, ``?exclude=NAME`` skips one."""
        title = self.path.strip("/")
        excluded = set(context.request.query.getall("exclude", []))
        async with asyncio.TaskGroup() as tasks:
            running = {name: tasks.create_task(_passes(check)) for name, check in self.checks.items() if name not in excluded}
        results = {name: task.result() for name, task in running.items()}
        for name, well in results.items():
            self.indicators.observe(name, title, well=well)
        lines = [f"[+]{name} ok" if well else f"[-]{name} failed: reason withheld" for name, well in results.items()]
        lines += [f"[+]{name} excluded: ok" for name in sorted(excluded & self.checks.keys())]
        if not all(results.values()):
            return responses.plain(500, "\n".join([*lines, f"{title} check failed"]) + "\n")
        if unknown := sorted(excluded - self.checks.keys()):
            listed = ",".join(f'"{each}"' for each in unknown)
            lines.append(f"warn: some health checks cannot be excluded: no matches for {listed}")
        if "verbose" in context.request.query:
            return responses.plain(200, "\n".join([*lines, f"{title} check passed"]) + "\n")
        return responses.plain(200, "ok")


async def _passes(check: Check) -> bool:
    try:
        async with asyncio.timeout(_SECONDS):
            return await check()
    except TimeoutError:
        return False
