"""Turns of the event loop in which many things are done."""

from __future__ import annotations

import asyncio
import math

import pytest

from apiserver.client.turns import Turn

SECONDS, MOST = 0.004, 128


class Clock:
    """Time that passes as it is told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def made_in_turns(count: int, seconds: float, most: float = MOST, *, asked_after: bool = False) -> list[int]:
    """Make things of which each takes so long; return how many were made in each turn of the event loop."""
    clock, made = Clock(), [0]

    async def others() -> None:
        while True:
            await asyncio.sleep(0)
            made.append(0)

    async with asyncio.TaskGroup() as tasks:
        busy = tasks.create_task(others())
        await asyncio.sleep(0)
        turn = Turn(SECONDS, most, clock)
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
async def test_a_turn_is_over_when_enough_is_made_or_its_time_has_passed(count: int, seconds: float, made: list[int]) -> None:
    assert await made_in_turns(count, seconds) == made


async def test_whoever_makes_what_is_cheap_may_make_more_of_it_in_a_turn() -> None:
    assert await made_in_turns(2 * MOST, 0, 2 * MOST) == [2 * MOST]


@pytest.mark.parametrize("asked_after", [False, True])
async def test_where_time_alone_counts_it_is_the_same_before_and_after_each_thing(asked_after: bool) -> None:
    assert await made_in_turns(9 * MOST, 0, math.inf, asked_after=asked_after) == [9 * MOST]
    assert await made_in_turns(5, SECONDS / 1.5, math.inf, asked_after=asked_after) == [2, 2, 1]
    assert await made_in_turns(3, 9, math.inf, asked_after=asked_after) == [1, 1, 1]
