from __future__ import annotations

import asyncio
from functools import partial

from apiserver.endpoints.http.turns import Turns


class Done:
    def __init__(self) -> None:
        self.names: list[str] = []

    def work(self, name: str, there: bool = True) -> bool:
        if there:
            self.names.append(name)
        return there


async def test_each_turn_does_a_little_for_one_address_after_the_other() -> None:
    turns, done = Turns(3), Done()
    for number in range(4):
        turns.wants("a", partial(done.work, f"a{number}"))
    for address in "bc":
        turns.wants(address, partial(done.work, f"{address}0"))
    assert done.names == []
    await asyncio.sleep(0)
    assert done.names == ["a0", "b0", "c0"]
    turns.wants("d", partial(done.work, "d0"))
    await asyncio.sleep(0)
    assert (done.names[3:], len(turns)) == (["a1", "d0", "a2"], 1)
    await asyncio.sleep(0)
    assert (done.names[6:], len(turns)) == (["a3"], 0)
    await asyncio.sleep(0)
    assert turns._handle is None, "nothing runs for nobody"


async def test_continued_work_runs_before_new_work() -> None:
    turns, done = Turns(2), Done()
    for number in range(3):
        turns.wants("a", partial(done.work, f"a{number}"))
    turns.wants("b", partial(done.work, "b0"), goes_on=True)
    await asyncio.sleep(0)
    assert done.names == ["b0", "a0"]


async def test_closed_peers_take_no_turn() -> None:
    turns, done = Turns(1), Done()
    for number in range(100):
        turns.wants("a", partial(done.work, f"a{number}", there=number == 99))
    await asyncio.sleep(0)
    assert (done.names, len(turns)) == (["a99"], 0)


async def test_work_that_fails_stops_no_other() -> None:
    turns, done = Turns(1), Done()
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context["exception"]))

    def fail() -> bool:
        raise RuntimeError("on purpose")

    turns.wants("a", fail)
    turns.wants("b", partial(done.work, "b0"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (done.names, [str(each) for each in failures]) == (["b0"], ["on purpose"])
