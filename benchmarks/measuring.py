"""Measures the duration and cost of calls in this process; prints one JSON object per line."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager


def report(name: str, count: int, wall: float, cpu: float) -> None:
    figures = {"name": name, "count": count, "per_second": round(count / wall), "cpu_us": round(cpu / count * 1e6, 1)}
    print(json.dumps(figures), flush=True)


@contextmanager
def measured(name: str, count: int) -> Iterator[None]:
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    report(name, count, time.perf_counter() - wall, time.process_time() - cpu)


async def repeated(name: str, count: int, work: Callable[[int], Awaitable[object]], *, callers: int) -> None:
    """Call ``work`` with each number below ``count``, in ``callers`` tasks; print the cost per call."""

    async def call(first: int) -> None:
        for number in range(first, count, callers):
            await work(number)

    with measured(name, count):
        async with asyncio.TaskGroup() as tasks:
            for caller in range(callers):
                tasks.create_task(call(caller))
