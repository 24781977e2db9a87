from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from apiserver.apis.core.resources import PODS
from apiserver.apis.meta import errors
from apiserver.apis.meta.objects import Object, name_of
from apiserver.client.backoff import Backoff
from apiserver.client.informer import TURN_SECONDS, Informer
from apiserver.client.turns import Turn
from apiserver.endpoints.verbs import reading

SECONDS, MOST = 0.004, 128


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def made_in_turns(count: int, seconds: float, most: float = MOST, *, asked_after: bool = False) -> list[int]:
    clock, made = Clock(), [0]

    async def others() -> None:
        while True:
            await asyncio.sleep(0)
            made.append(0)

    async with asyncio.TaskGroup() as tasks:
        busy = tasks.create_task(others())
        await asyncio.sleep(0)
        turn = Turn(SECONDS, most=most, clock=clock)
        for _ in range(count):
            if not asked_after:
                await turn.rest()
            made[-1] += 1
            clock.now += seconds
            if asked_after:
                await turn.rest()
        busy.cancel()
    return [each for each in made if each]


@pytest.mark.parametrize(
    ("count", "seconds", "made"),
    [
        (0, 0, []),
        (1, 9, [1]),
        (3, 9, [1, 1, 1]),
        (3, SECONDS, [1, 1, 1]),
        (5, SECONDS / 1.5, [2, 2, 1]),
        (MOST, 0, [MOST]),
        (2 * MOST + 1, 0, [MOST, MOST, 1]),
    ],
)
async def test_turn_ends_at_its_count_or_time_limit(count: int, seconds: float, made: list[int]) -> None:
    assert await made_in_turns(count, seconds) == made


async def test_cheap_items_may_exceed_the_count_of_a_turn() -> None:
    assert await made_in_turns(2 * MOST, 0, 2 * MOST) == [2 * MOST]


@pytest.mark.parametrize("asked_after", [False, True])
async def test_time_limited_turns_check_before_or_after_each_item(asked_after: bool) -> None:
    assert await made_in_turns(9 * MOST, 0, math.inf, asked_after=asked_after) == [9 * MOST]
    assert await made_in_turns(5, SECONDS / 1.5, math.inf, asked_after=asked_after) == [2, 2, 1]
    assert await made_in_turns(3, 9, math.inf, asked_after=asked_after) == [1, 1, 1]


async def test_long_listing_yields_to_other_tasks() -> None:
    turns, seen = 0, list[int]()

    class Listing:
        async def list(self, *_: object, **__: object) -> Object:
            return {"metadata": {"resourceVersion": "1"}, "items": [{"metadata": {"name": f"p{each}"}} for each in range(5)]}

        async def watch(self, *_: object, initial_events: bool = False, **__: object) -> AsyncIterator[Any]:
            if initial_events:
                raise errors.BadRequest("streaming lists")
            await asyncio.Event().wait()
            yield

    def slow(obj: Object) -> Object:
        seen.append(turns)
        time.sleep(TURN_SECONDS)
        return obj

    client: Any = Listing()
    informer = Informer(client, PODS, indexers={"name": lambda obj: [name_of(slow(obj))]}, trim=slow, backoff=Backoff(0, 0))
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(informer.run())
        while not informer.synced.is_set():
            turns += 1
            await asyncio.sleep(0)
        running.cancel()
    assert len(seen) == len(set(seen)) == 10, "each was trimmed, and then indexed"


async def test_objects_that_are_soon_made_do_not_have_a_turn_each() -> None:
    turns, seen = 0, list[int]()

    def part(*_: object) -> Object:
        seen.append(turns)
        return {}

    presenter = SimpleNamespace(many=lambda *_: {"items": []}, part=part)
    served: Any = SimpleNamespace(presenter=presenter, store=SimpleNamespace(shown=lambda item: item))
    anything: Any = None
    async with asyncio.TaskGroup() as tasks:
        made = tasks.create_task(reading.in_pieces(served, [anything] * 3 * reading.MOST, {}, anything, anything))
        while not made.done():
            turns += 1
            await asyncio.sleep(0)
    assert 3 <= len(set(seen)) < reading.MOST
