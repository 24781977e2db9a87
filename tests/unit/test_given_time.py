from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable

import pytest

from tests.given_time import LAST_RESORT_SECONDS, LOOK_SECONDS, Deadline, Look, given, guests, processor_seconds, stalled_seconds


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (Look(10.0, 0.0), 10.0),
        (Look(10.0, 4.0), 6.0),
        (Look(10.0, 10.0), 1.25),
        (Look(10.0, 10.0, {1: 5.0}), 2.0),
        (Look(10.0, 10.0, {1: 5.0, 2: 4.0}), 6.0),
        (Look(10.0, 10.0, {1: 33.0}), 10.0),
        (Look(10.0, 1.0, {1: 3.0}), 9.0),
    ],
    ids=["quiet", "others work", "always others", "a guest works", "a second one began", "on several processors", "a guest idles"],
)
def test_processor_time_of_others_is_not_given_time(after: Look, expected: float) -> None:
    assert given(Look(0.0, 0.0, {1: 3.0}), after) == pytest.approx(expected)


class Clocks:
    def __init__(self, wall: float, stalled: float, guest: float) -> None:
        self.steps = wall, stalled, guest
        self.count = 0

    def __call__(self, processes: Iterable[int]) -> Look:
        wall, stalled, guest = (each * self.count for each in self.steps)
        return Look(wall, stalled, dict.fromkeys(processes, guest))

    def move(self) -> None:
        self.count += 1

    def until_over(self, deadline: Deadline) -> int:
        while not deadline.is_over:
            self.move()
        return self.count


@pytest.mark.parametrize(
    ("clocks", "moves"),
    [(Clocks(1.0, 0.0, 0.0), 30), (Clocks(1.0, 1.0, 0.0), 240), (Clocks(1.0, 1.0, 0.5), 60), (Clocks(10.0, 10.0, 0.0), 24)],
    ids=["quiet", "always others", "the guest has half", "coarse looks"],
)
def test_a_deadline_is_over_when_so_much_was_given(clocks: Clocks, moves: int) -> None:
    assert clocks.until_over(Deadline(30.0, lambda: [7], clocks)) == moves


def test_wall_time_is_the_last_resort_of_a_deadline() -> None:
    starved, quiet = Clocks(1.0, 1.0, 0.0), Clocks(1.0, 0.0, 0.0)
    assert starved.until_over(Deadline(100.0, look=starved)) == LAST_RESORT_SECONDS
    assert quiet.until_over(Deadline(LAST_RESORT_SECONDS + 300, look=quiet)) == LAST_RESORT_SECONDS + 300


def test_a_guest_that_begins_meanwhile_counts_from_then_on() -> None:
    listed: list[int] = []
    clocks = Clocks(LOOK_SECONDS * 2, LOOK_SECONDS * 2, LOOK_SECONDS)
    deadline = Deadline(30.0, lambda: listed, clocks)
    clocks.move()
    assert deadline.left == 29.5
    listed.append(7)
    clocks.move()
    assert deadline.left == 29.0, "it is found by this look"
    clocks.move()
    assert deadline.left == 27.0, "it had half of the time"


def test_the_clocks_of_this_machine_go_on() -> None:
    before = stalled_seconds()
    assert stalled_seconds() >= before >= 0
    used = processor_seconds(os.getpid())
    assert used is not None
    while processor_seconds(os.getpid()) == used:
        pass
    child = subprocess.Popen(["true"])
    child.wait()
    assert processor_seconds(child.pid) is None


def test_a_guest_is_found_by_its_domain() -> None:
    name = f"ns{os.getpid()}_vm"
    command = ["qemu-system-test", "-c", "print(flush=True); input()", f"-name guest={name},debug-threads=on"]
    with subprocess.Popen(command, executable=sys.executable, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdout.readline()  # Popen may return before the process has its arguments
            assert guests(name) == [process.pid]
            assert process.pid in guests()
            assert guests(f"{name}2") == []
        finally:
            process.kill()
