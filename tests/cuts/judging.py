"""Judges whether a cell lost data, ran a guest twice, or hung: pure functions of what was seen of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.cuts import client
from tests.cuts.description import Expected

WINDOW_SECONDS: Final = 0.8
"""Between two looks at the processes, of which more than one guest that ran in between is seen."""
RUNNING_SHARE: Final = 0.02
"""Of a processor: a guest that counts takes more, one that is paused none."""
PASSING_SECONDS: Final = 10.0
"""For a Service's clients to have an answer again, beyond the time for which the guest itself stood still, where nothing is cut.

So long the pod that a guest has left passes new connections on (docs/networks.md): the client's node has to know the other pod by then.
"""


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at a guest from outside."""

    at: float
    """Seconds of a monotonic clock."""
    counter: int
    """The highest number on its disk."""
    processors: Mapping[int, float]
    """Of each QEMU of the machine on any node, by its process id: the processor time that its vCPUs have had, in seconds."""


@dataclass(frozen=True, slots=True)
class Guest:
    """Observations of one guest."""

    name: str
    samples: Sequence[Sample]
    lost: Sequence[int]
    """Numbers that the guest had written with fsync, up to the highest seen at any time, and that its disk did not have at the end."""
    boots: int
    """Boots of the guest that wrote those numbers."""
    counts: bool
    """It counted at the end, on its disk and on its console."""
    phase: str
    """Of its Migration at the end; empty: there was none."""
    seconds: float | None = None
    """From the cut to the Migration's end; None: it was not over in time."""
    attempts: int = 1
    """Attempts that the Migration made."""
    message: str = ""
    """Of its Migration at the end."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A connection of the Service's client by which the guest did not answer."""

    at: float
    words: str
    """Of tests/cuts/client.py."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Everything that was seen of a cell."""

    expected: Expected
    cut_at: float
    over: float
    """Time after which no more was looked at, on the clock of :attr:`cut_at`."""
    guests: Sequence[Guest]
    """The first one answers the Service's client."""
    step_seen: str
    """Empty: the step was certain when the cut was made. Otherwise what was seen instead."""
    operation_seconds: float | None
    """From the cut until the drain or upgrade was over; None: it was not over in time."""
    answers: Sequence[float] = field(default=())
    """Times at which the Service's client was answered."""
    failures: Sequence[Failure] = field(default=())
    """Of that client."""
    is_answered: bool = True
    """The client was answered at the end, again and again."""
    is_undisturbed: bool = False
    """Nothing was cut."""
    repeated: int = 0
    """Number of times that ``kubectl drain`` had to be called again."""


def faults(seen: Seen) -> list[str]:
    """Return what must not be, in words; empty: the cell is good."""
    found = [f"missed: {seen.step_seen}"] if seen.step_seen else []
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
    if guest.boots > 1 and seen.expected is not Expected.BEGINS_ANEW:
        yield "began anew"
    if guest.phase and guest.phase != "Succeeded" and seen.expected is Expected.MOVES:
        yield f"did not move: its Migration is {guest.phase} ({guest.message})"


def _of_client(seen: Seen) -> Iterator[str]:
    """Return what must not happen to clients: another's answer, whatever is cut; where nothing is, a way to nobody, or a long silence."""
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
    """Return pairs of looks that are at least :data:`WINDOW_SECONDS` apart, and no further than need be."""
    later = iter(samples)
    end = next(later, None)
    for begin in samples:
        while end is not None and end.at - begin.at < WINDOW_SECONDS:
            end = next(later, None)
        if end is None:
            return
        yield begin, end


def _ran(window: tuple[Sample, Sample]) -> set[int]:
    """Return the QEMUs that were there at both looks and whose guest ran in between."""
    before, after = window
    enough = RUNNING_SHARE * (after.at - before.at)
    return {pid for pid in before.processors.keys() & after.processors if after.processors[pid] - before.processors[pid] > enough}


def longest_silence(answers: Sequence[float], begin: float, end: float) -> float:
    """Return for how long at most the client had no answer between two times."""
    inside = sorted({begin, *(each for each in answers if begin < each < end), end})
    return max((after - before for before, after in itertools.pairwise(inside)), default=0.0)


def longest_stop(samples: Sequence[Sample], begin: float) -> float:
    """Return for how long at most a guest did not count, from a time on."""
    grew = [after.at for before, after in itertools.pairwise(samples) if after.counter > before.counter and after.at >= begin]
    return max((after - before for before, after in itertools.pairwise([begin, *grew])), default=0.0)
