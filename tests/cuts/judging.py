"""Decides whether a case lost data, ran a guest twice, or hung."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.cuts import client
from tests.cuts.description import Expected

WINDOW_SECONDS: Final = 0.8
"""Between two looks that reveal two running guests."""
RUNNING_SHARE: Final = 0.02
"""Processor share of a counting guest; a paused one uses none."""
PASSING_SECONDS: Final = 10.0
"""Seconds without an answer, beyond the guest's own pause, if nothing is cut: the old pod forwards for so long."""


@dataclass(frozen=True, slots=True)
class Sample:
    at: float
    counter: int
    processors: Mapping[int, float]
    """vCPU seconds of each QEMU of the VM, by pid."""


@dataclass(frozen=True, slots=True)
class Guest:
    name: str
    samples: Sequence[Sample]
    lost: Sequence[int]
    """Numbers that the guest wrote with fsync, and its disk lacked."""
    boots: int
    counts: bool
    """It counted at the end, on disk and console."""
    phase: str
    seconds: float | None = None
    """From the cut to the Migration's end; None: not in time."""
    attempts: int = 1
    message: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    at: float
    words: str


@dataclass(frozen=True, slots=True)
class Seen:
    expected: Expected
    cut_at: float
    over: float
    guests: Sequence[Guest]
    """The first one answers the Service's client."""
    step_seen: str
    """Empty if the step was certain at the cut."""
    operation_seconds: float | None
    """From the cut to the drain's or upgrade's end; None: not in time."""
    answers: Sequence[float] = field(default=())
    failures: Sequence[Failure] = field(default=())
    is_answered: bool = True
    """The client got answers at the end."""
    is_undisturbed: bool = False
    repeated: int = 0
    further: Sequence[str] = field(default=())
    """Other faults."""


def faults(seen: Seen) -> list[str]:
    found = [*([f"missed: {seen.step_seen}"] if seen.step_seen else []), *seen.further]
    if seen.operation_seconds is None:
        found.append("hung: the operation was not over in time")
    for each in seen.guests:
        found += [f"{each.name}: {fault}" for fault in _of_guest(each, seen)]
    return found + [f"client: {fault}" for fault in _of_client(seen)]


def _of_guest(guest: Guest, seen: Seen) -> Iterator[str]:
    if not any(_ran(window) for window in _windows(guest.samples) if window[1].at <= seen.cut_at):
        yield "unseen: no QEMU was seen to run before the cut"
    if guest.lost:
        yield f"lost data: {len(guest.lost)} numbers that were written, from {min(guest.lost)} on"
    if any(after.counter < before.counter for before, after in itertools.pairwise(guest.samples)):
        yield "lost data: its counter went back"
    if twice := next((window for window in _windows(guest.samples) if len(_ran(window)) > 1), None):
        yield f"ran two: QEMU {' and '.join(map(str, sorted(_ran(twice))))} within {twice[1].at - twice[0].at:.1f} s"
    if not guest.counts:
        yield "hung: it does not count any more"
    if guest.phase and guest.seconds is None:
        yield f"hung: its Migration is still {guest.phase}"
    if guest.boots > 1 and seen.expected not in (Expected.RESTARTS, Expected.ELSEWHERE):
        yield "restarted"
    if guest.phase and guest.phase != "Succeeded" and seen.expected is Expected.MOVES:
        yield f"did not move: its Migration is {guest.phase} ({guest.message})"


def _of_client(seen: Seen) -> Iterator[str]:
    if others := [each for each in seen.failures if each.words.startswith(client.ANOTHER)]:
        yield f"{len(others)} answers were not the guest's: {others[0].words}"
    if not seen.is_answered:
        yield "hung: the Service does not answer any more"
    if not seen.is_undisturbed:
        return
    if nobody := [each for each in seen.failures if each.words in client.NOBODY]:
        yield f"{len(nobody)} connections led to nobody, the first {nobody[0].at - seen.cut_at:.1f} s from the cut on: {nobody[0].words}"
    stop = longest_stop(seen.guests[0].samples, seen.cut_at)
    silence = longest_silence(seen.answers, seen.cut_at, seen.over)
    if silence > stop + PASSING_SECONDS:
        yield f"no answer for {silence:.1f} s, and the guest stood still for {stop:.1f} s"


def _windows(samples: Sequence[Sample]) -> Iterator[tuple[Sample, Sample]]:
    later = iter(samples)
    end = next(later, None)
    for begin in samples:
        while end is not None and end.at - begin.at < WINDOW_SECONDS:
            end = next(later, None)
        if end is None:
            return
        yield begin, end


def _ran(window: tuple[Sample, Sample]) -> set[int]:
    before, after = window
    enough = RUNNING_SHARE * (after.at - before.at)
    return {pid for pid in before.processors.keys() & after.processors if after.processors[pid] - before.processors[pid] > enough}


def longest_silence(answers: Sequence[float], begin: float, end: float) -> float:
    inside = sorted({begin, *(each for each in answers if begin < each < end), end})
    return max((after - before for before, after in itertools.pairwise(inside)), default=0.0)


def longest_stop(samples: Sequence[Sample], begin: float) -> float:
    grew = [after.at for before, after in itertools.pairwise(samples) if after.counter > before.counter and after.at >= begin]
    return max((after - before for before, after in itertools.pairwise([begin, *grew])), default=0.0)
