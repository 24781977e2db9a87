"""AUD-01: destinations of events, and slow destinations."""

from __future__ import annotations

import asyncio
import gzip
import stat
from pathlib import Path

import pytest

from apiserver.metrics.instruments import Cell
from apiserver.server.audit.buffering import Buffer, BufferOptions, Mode
from apiserver.server.audit.logfile import LogFile


class Slow:
    """Stores when the test allows it."""

    def __init__(self) -> None:
        self.stored: list[str] = []
        self.go = asyncio.Event()
        self.fails = False

    async def store(self, batch: list[str]) -> None:
        await self.go.wait()
        if self.fails:
            raise OSError("disk is full")
        self.stored += batch


def buffer(slow: Slow, mode: Mode, size: int = 2) -> tuple[Buffer, Cell]:
    lost = Cell()
    return Buffer("log", slow.store, BufferOptions(mode, size, wait_seconds=0.001), lost), lost


async def test_a_batch_backend_loses_what_does_not_fit_and_counts_it() -> None:
    slow = Slow()
    made, lost = buffer(slow, "batch")
    for each in "abc":
        made.add(each)
    assert lost.value == 1
    assert not made.full
    slow.go.set()
    made.close()
    await made.run()
    assert slow.stored == ["a", "b"]


async def test_a_blocking_backend_lets_requests_wait_and_loses_nothing() -> None:
    slow = Slow()
    made, lost = buffer(slow, "blocking")
    for each in "abc":
        made.add(each)
    assert made.full
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(made.run())
        waiting = tasks.create_task(made.room())
        await asyncio.sleep(0.01)
        assert not waiting.done()
        slow.go.set()
        await waiting
        made.close()
        await running
    assert slow.stored == ["a", "b", "c"]
    assert lost.value == 0


async def test_a_strict_backend_refuses_what_it_cannot_store() -> None:
    slow = Slow()
    slow.go.set()
    slow.fails = True
    made, lost = buffer(slow, "blocking-strict")
    assert made.full
    made.add("a")
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(made.run())
        with pytest.raises(OSError, match="does not store"):
            await made.room()
        slow.fails = False
        made.add("b")
        await made.room()
        made.close()
        await running
    assert (slow.stored, lost.value) == (["b"], 1)


class Gated:
    """Stores each batch with the outcome that the test sets."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.ends: list[asyncio.Future[None]] = []

    async def store(self, batch: list[str]) -> None:
        self.batches.append(list(batch))
        self.ends.append(asyncio.get_running_loop().create_future())
        await self.ends[-1]


async def room(made: Buffer) -> bool:
    try:
        await made.room()
    except OSError:
        return False
    return True


async def test_a_request_waits_for_the_batch_of_its_event_and_no_longer() -> None:
    gated = Gated()
    made = Buffer("log", gated.store, BufferOptions("blocking-strict", 100), Cell())
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(made.run())
        ends = (None, OSError("disk is full"), None)
        requests: list[asyncio.Task[bool]] = []
        for count in range(len(ends)):
            for each in "ab":
                made.add(f"{each}{count}")
                requests.append(tasks.create_task(room(made)))
            await asyncio.sleep(0.01)
            if count:  # meanwhile the previous batch is stored
                finish(gated.ends[count - 1], ends[count - 1])
                await asyncio.sleep(0.01)
            assert [each.done() for each in requests] == [True] * 2 * count + [False] * 2
        finish(gated.ends[-1], ends[-1])
        made.close()
        await running
    assert gated.batches == [["a0", "b0"], ["a1", "b1"], ["a2", "b2"]]
    assert [each.result() for each in requests] == [True, True, False, False, True, True]


def finish(future: asyncio.Future[None], error: OSError | None) -> None:
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)


async def test_a_request_that_is_given_up_keeps_nobody_else_waiting() -> None:
    gated = Gated()
    made = Buffer("log", gated.store, BufferOptions("blocking-strict", 100), Cell())
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(made.run())
        made.add("a")
        given_up, other = [tasks.create_task(room(made)) for _ in range(2)]
        await asyncio.sleep(0.01)
        given_up.cancel()
        gated.ends[0].set_result(None)
        assert await other
        made.close()
        await running


async def test_a_request_that_asks_once_its_event_is_lost_is_refused() -> None:
    slow = Slow()
    slow.go.set()
    slow.fails = True
    made, lost = buffer(slow, "blocking-strict")
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(made.run())
        made.add("a")
        await asyncio.sleep(0.01)
        assert lost.value == 1
        with pytest.raises(OSError, match="does not store"):
            await made.room()
        made.close()
        await running


async def test_so_many_events_are_stored_at_once_and_no_more() -> None:
    batches: list[list[str]] = []
    made = Buffer("log", batches.append, BufferOptions("blocking", 100, batch=2, wait_seconds=0.001), Cell())
    for each in "abcde":
        made.add(each)
    made.close()
    await made.run()
    assert batches == [["a", "b"], ["c", "d"], ["e"]]


async def test_everything_is_stored_at_the_end() -> None:
    slow = Slow()
    slow.go.set()
    made, _ = buffer(slow, "blocking", 1000)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(made.run())
        for each in range(500):
            made.add(str(each))
        made.close()
        await running
    assert slow.stored == [str(each) for each in range(500)]


def test_the_file_is_rotated_and_old_ones_go(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    log = LogFile(str(path), megabytes=1, backups=2, compress=True)
    for each in range(5):
        log.write([f"{each}" * 600_000])
    log.close()
    old = sorted(each for each in tmp_path.iterdir() if each != path)
    assert len(old) == 2
    assert path.read_text() == "4" * 600_000 + "\n"
    assert gzip.decompress(old[-1].read_bytes()) == b"3" * 600_000 + b"\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_file_is_gone_on_with_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    for each in "ab":
        log = LogFile(str(path))
        log.write([each])
        log.close()
    assert path.read_text() == "a\nb\n"


def test_standard_output_is_a_place(capfd: pytest.CaptureFixture[str]) -> None:
    log = LogFile("-")
    log.write(["one", "two"])
    log.close()
    assert capfd.readouterr().out == "one\ntwo\n"
