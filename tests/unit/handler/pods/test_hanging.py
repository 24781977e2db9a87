from __future__ import annotations

import asyncio
import gc
import itertools
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from handler.pods.hanging import Calls, StorageHangs

IMPATIENT = 0.02


def ended(uid: str) -> bool:
    return not any(each.name == f"pod {uid}" for each in threading.enumerate())


def joined(uid: str) -> None:
    for each in threading.enumerate():
        if each.name == f"pod {uid}":
            each.join(10)
    assert ended(uid)


async def patiently(run: Callable[[], Awaitable[None]]) -> None:
    """Repeat a call until its thread gets processor time before ``IMPATIENT`` passes."""
    while True:
        try:
            return await run()
        except StorageHangs:
            pass


async def test_finished_call_is_over_and_the_next_request_calls_again() -> None:
    calls, counted = Calls[int](), itertools.count()
    assert [await calls.run("pod-1", lambda: counted.__next__) for _ in range(3)] == [0, 1, 2]


async def test_waiter_gets_the_calls_error_and_may_retry() -> None:
    """The VM's message is the system's error, not that the storage hangs."""
    calls, answers = Calls[str](), iter([OSError("stale file handle"), None])

    def call() -> str:
        if (fault := next(answers)) is not None:
            raise fault
        return "given"

    with pytest.raises(OSError, match="stale file handle"):
        await calls.run("pod-1", lambda: call)
    assert await calls.run("pod-1", lambda: call) == "given"


async def test_cancelled_waiter_leaves_the_call_to_the_next() -> None:
    calls, answers, begun = Calls[str](), threading.Event(), itertools.count()

    def call() -> str:
        next(begun)
        return "given" if answers.wait(10) else "late"

    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(calls.run("pod-1", lambda: call))
        await asyncio.sleep(0.01)
        first.cancel()
    second = calls.run("pod-1", lambda: call)
    answers.set()
    assert await second == "given"
    assert next(begun) == 1


@pytest.mark.parametrize("outcome", [None, OSError("stale file handle")])
async def test_call_begins_after_the_opposite_one_of_its_pod(outcome: Exception | None) -> None:
    calls, answers, done = Calls[None](IMPATIENT), threading.Event(), list[str]()

    def mount() -> None:
        answers.wait(10)
        done.append("mount")
        if outcome is not None:
            raise outcome

    def unmount() -> None:
        done.append("unmount")

    with pytest.raises(StorageHangs):
        await calls.run("pod-1", lambda: mount, "mount", after="unmount")
    with pytest.raises(StorageHangs):
        await calls.run("pod-1", lambda: unmount, "unmount", after="mount")
    await patiently(lambda: calls.run("pod-2", lambda: unmount, "unmount", after="mount"))
    assert set(done) == {"unmount"}
    done.clear()
    answers.set()
    await patiently(lambda: calls.run("pod-1", lambda: unmount, "unmount", after="mount"))
    assert done[:2] == ["mount", "unmount"]


async def test_a_call_that_fails_after_everybody_left_is_no_complaint() -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    calls, answers = Calls[None](IMPATIENT), threading.Event()

    def call() -> None:
        answers.wait(10)
        raise OSError("stale file handle")

    with pytest.raises(StorageHangs, match="pod pod-1"):
        await calls.run("pod-1", lambda: call)
    answers.set()
    while not ended("pod-1"):
        await asyncio.sleep(0.01)
    await asyncio.sleep(0)  # its outcome is delivered
    gc.collect()
    assert complaints == []


@pytest.mark.parametrize("outcome", ["result", "error"])
def test_call_outliving_the_event_loop_ends_quietly(outcome: str) -> None:
    """An uncaught exception in a thread fails this test, because pytest treats warnings as errors."""
    answers, daemonic = threading.Event(), []

    def call() -> None:
        daemonic.append(threading.current_thread().daemon)
        answers.wait(10)
        if outcome == "error":
            raise OSError("stale file handle")

    async def serve() -> None:
        begin: Callable[[], Callable[[], None]] = lambda: call  # noqa: E731 - what is begun
        with pytest.raises(StorageHangs):
            await Calls[None](IMPATIENT).run(f"outliving-{outcome}", begin)

    asyncio.run(serve())
    answers.set()
    joined(f"outliving-{outcome}")
    assert daemonic == [True]  # the interpreter waits for non-daemon threads at exit
