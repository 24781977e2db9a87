from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from apiserver.apis.meta import errors
from controller.runtime.reconciling import RECONCILE_SECONDS, Controller, Request, Result, Terminal
from tests.unit.controller.virtualtime import run


class Scripted:
    def __init__(self, *script: Callable[[], Result] | Exception | Result) -> None:
        self.script = list(script)
        self.at: list[float] = []

    async def reconcile(self, request: Request) -> Result:
        self.at.append(asyncio.get_running_loop().time())
        step = self.script.pop(0) if self.script else Result()
        if isinstance(step, Exception):
            raise step
        return step() if callable(step) else step


def moments(reconciler: Scripted, *, seconds: float = 1000) -> list[float]:
    async def scenario() -> None:
        controller = Controller("test", reconciler, workers=2)
        controller.enqueue(Request("ns", "name"))
        async with asyncio.timeout(seconds):
            await controller.run()

    with pytest.raises(TimeoutError):
        run(scenario())
    return reconciler.at


def test_success_is_the_end_of_it() -> None:
    assert moments(Scripted(Result())) == [0]


def test_a_result_can_ask_for_another_look() -> None:
    assert moments(Scripted(Result(requeue_after=30), Result())) == [0, 30]


def test_errors_and_conflicts_are_retried_with_growing_pauses() -> None:
    first, second, third, fourth = moments(Scripted(ValueError("a defect"), errors.Conflict("stale"), errors.ServiceUnavailable("away")))
    assert 0 < second - first < third - second < fourth - third


def test_success_resets_the_pauses() -> None:
    bad = [ValueError("a defect")] * 6
    called = moments(Scripted(*bad, Result(requeue_after=50), ValueError("another"), Result()))
    grown, first, again = called[6] - called[5], called[1] - called[0], called[8] - called[7]
    assert called[7] - called[6] == 50
    assert again == pytest.approx(first)
    assert grown == pytest.approx(32 * first)


def test_terminal_error_resets_the_pauses() -> None:
    reconciler = Scripted(*[ValueError("a defect")] * 6, Terminal("no such machine type"), ValueError("another"), Result())

    async def scenario() -> None:
        controller = Controller("test", reconciler, workers=1)
        controller.enqueue(Request("ns", "name"))
        async with asyncio.timeout(1000), asyncio.TaskGroup() as tasks:
            tasks.create_task(controller.run())
            while len(reconciler.at) < 7:
                await asyncio.sleep(1)
            controller.enqueue(Request("ns", "name"))  # it changed

    with pytest.raises(TimeoutError):
        run(scenario())
    called = reconciler.at
    assert called[8] - called[7] < (called[6] - called[5]) / 8


def test_a_terminal_error_is_not_tried_again() -> None:
    assert moments(Scripted(Terminal("no such machine type"))) == [0]


def test_a_pass_that_hangs_is_cancelled_and_tried_again() -> None:
    class Hanging(Scripted):
        async def reconcile(self, request: Request) -> Result:
            await super().reconcile(request)
            if len(self.at) == 1:
                await asyncio.sleep(10 * RECONCILE_SECONDS)
            return Result()

    assert moments(Hanging()) == [0, pytest.approx(RECONCILE_SECONDS, abs=1)]


def test_single_object_never_has_two_workers() -> None:
    async def scenario() -> int:
        most = running = 0

        class Counting:
            async def reconcile(self, request: Request) -> Result:
                nonlocal most, running
                running += 1
                most = max(most, running)
                await asyncio.sleep(1)
                running -= 1
                return Result()

        controller = Controller("test", Counting(), workers=4)
        async with asyncio.TaskGroup() as tasks:
            working = tasks.create_task(controller.run())
            for _ in range(20):
                controller.enqueue(Request("ns", "one"))
                await asyncio.sleep(0.3)
            working.cancel()
        return most

    assert run(scenario()) == 1


@pytest.mark.parametrize("workers", [1, None])
def test_passes_without_waiting_yield_to_other_tasks(workers: int | None) -> None:
    """A tenant's thousand objects would take one turn of the event loop, which also renews the lease."""
    passes, turns = 50, [0]

    class Busy:
        def __init__(self) -> None:
            self.left = passes

        async def reconcile(self, request: Request) -> Result:
            self.left -= 1
            if not self.left:
                done.set()
            return Result()

    async def others() -> None:
        while True:
            turns[0] += 1
            await asyncio.sleep(0)

    async def scenario() -> None:
        controller = Controller("test", Busy(), workers=workers, turn_seconds=0)
        for number in range(passes):
            controller.enqueue(Request("ns", f"name-{number}"))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in (others(), controller.run())]
            await done.wait()
            for each in tasks:
                each.cancel()

    done = asyncio.Event()
    run(scenario())
    assert turns[0] >= passes - 1
