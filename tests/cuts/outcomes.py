"""Outcomes, one file each, so that interrupted runs continue."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.cuts import judging
from tests.cuts.description import Case
from tests.cuts.judging import Seen
from tests.testbed import layout

DIRECTORY: Final = layout.REPOSITORY / "build" / "faults"


@dataclass(frozen=True, slots=True)
class Outcome:
    case: str
    text: str
    faults: tuple[str, ...]
    commit: str
    seconds: float


def outcome(case: Case, seen: Seen, commit: str) -> Outcome:
    return Outcome(case.name, _text(seen), tuple(judging.faults(seen)), commit, round(seen.operation_seconds or 0.0, 1))


def _text(seen: Seen) -> str:
    words = []
    for phase in sorted({each.phase for each in seen.guests}, reverse=True):
        count = sum(each.phase == phase for each in seen.guests)
        words += [phase if len(seen.guests) == 1 else f"{count} {phase}"] if phase else []
    attempts = max(each.attempts for each in seen.guests)
    told = ", ".join(words)
    if attempts > 1:
        told += f" (attempt {attempts})"
    if seen.repeated:
        told += f", kubectl drain called {seen.repeated + 1} times"
    if any(each.boots > 1 for each in seen.guests):
        told += ", restarted"
    when = "hung" if seen.operation_seconds is None else f"{seen.operation_seconds:.0f} s"
    stop = max(judging.longest_stop(each.samples, seen.cut_at) for each in seen.guests)
    silence = judging.longest_silence(seen.answers, seen.cut_at, seen.over)
    return f"{told.removeprefix(', ')} {when}; {stop:.1f}/{silence:.1f}".lstrip()


def write(found: Outcome, directory: Path = DIRECTORY) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{found.case}.json").write_text(json.dumps(dataclasses.asdict(found), indent=1) + "\n")


def kept(cases: Iterable[Case], directory: Path = DIRECTORY) -> dict[str, Outcome]:
    found = {}
    for case in cases:
        path = directory / f"{case.name}.json"
        if path.exists():
            values = json.loads(path.read_text())
            found[case.name] = Outcome(**{**values, "faults": tuple(values["faults"])})
    return found


def forget(cases: Iterable[Case], directory: Path = DIRECTORY) -> None:
    for case in cases:
        (directory / f"{case.name}.json").unlink(missing_ok=True)
