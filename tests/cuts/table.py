"""docs/faults.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from tests.cuts.description import CUTS, END_SECONDS, OPERATIONS, cells, cuts, steps
from tests.cuts.judging import PASSING_SECONDS, WINDOW_SECONDS
from tests.cuts.outcomes import Outcome
from tests.testbed import layout

DOCUMENT: Final = layout.REPOSITORY / "docs" / "faults.md"
NOT_RUN: Final = "not run"
NOTHING: Final = "–"

HEAD: Final = """\
# What is cut, and what comes of it

Written by `make test-faults`, which cuts one process or link of the test cluster at one step of a live migration, of a drain or of an
upgrade, and looks at what comes of it; `make test-faults FAULTS="handler-source drain"` plays the cells in whose names one of the words
occurs. Do not edit it. {made}

A guest counts five times a second at most: it writes each number to its disk with fsync, and then to its console. A client on node1 asks
it through a Service ten times a second. No cell may have **lost data** (a number that was written is gone, or the counter went back),
**ran two** (the vCPUs of two QEMUs of the guest had processor time within {window} s, by the process table of both nodes, looked at five
times a second), or have **hung** (Migration, drain or upgrade are over within {end:.0f} s, and then the guest counts on its disk and on its
console, and the Service answers). In none may the client hear **another's answer**. Where nothing is cut, none of its connections may be
refused or lead to no host, as those to an empty pod do, and its longest time without an answer is that of the guest's own stop and
{passing:.0f} s at most. A cell that does otherwise, or ends otherwise than it should, has its fault in bold letters, and
`make test-faults` fails.

In a cell: what became of the Migration, and after how many seconds from the cut (drain, upgrade: the end of all of it); then the longest
times in seconds for which the guest did not count, and for which the client had no answer. `Failed`: the guest goes on where it was, and
who wants it moved asks again, as drains do. `(attempt 2)`: the first attempt broke off, and the same Migration had another. `the guest
began anew`: the cut ended the guest itself; what it wrote is there. The seconds are those of a machine of two cores where guests are
emulated. `{nothing}`: there is nothing to cut at that step.
"""


def written(outcomes: Mapping[str, Outcome], before: Mapping[str, str], date: str) -> str:
    """Return the document.

    Args:
        before: the previous document's texts, for cells without an outcome.
        date: of the last run.
    """
    texts = {**before, **{name: _shown(each) for name, each in outcomes.items()}}
    there = {each.name for each in cells()}
    parts = [_head(_made(outcomes.values(), date))]
    for operation in OPERATIONS:
        columns = steps(operation)
        lines = [["", *(each.name for each in columns)], ["---"] * (len(columns) + 1)]
        for cut in cuts(operation):
            names = [f"{operation}.{cut.name}.{each.name}" for each in columns]
            lines.append([cut.name, *(texts.get(name, NOT_RUN) if name in there else NOTHING for name in names)])
        table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
        when = "".join(f"- **{each.name}**: {each.when}.\n" for each in columns)
        parts.append(f"## {operation.capitalize()}\n\n{table}\n{when}")
    parts.append("## Cuts\n\n" + "".join(f"- **{each.name}**: {each.what}.\n" for each in CUTS))
    return "\n".join(parts)


def _head(made: str) -> str:
    return HEAD.format(made=made, window=WINDOW_SECONDS, end=END_SECONDS, passing=PASSING_SECONDS, nothing=NOTHING)


def read(document: str) -> dict[str, str]:
    """Return the texts by cell, without cells that have nothing to cut or were not run."""
    found: dict[str, str] = {}
    for section in document.split("\n## ")[1:]:
        operation = section.partition("\n")[0].lower()
        lines = [[word.strip() for word in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("|")]
        if operation in OPERATIONS and lines:
            for cut, *texts in lines[2:]:
                found |= {f"{operation}.{cut}.{step}": text for step, text in zip(lines[0][1:], texts, strict=True)}
    return {name: text for name, text in found.items() if text not in (NOTHING, NOT_RUN)}


def axes(document: str) -> dict[str, tuple[list[str], list[str]]]:
    """Return the rows and columns of each operation's table."""
    found: dict[str, tuple[list[str], list[str]]] = {}
    for section in document.split("\n## ")[1:]:
        lines = [[word.strip() for word in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("|")]
        if lines:
            found[section.partition("\n")[0].lower()] = [line[0] for line in lines[2:]], lines[0][1:]
    return found


def write(outcomes: Mapping[str, Outcome], date: str) -> None:
    before = read(DOCUMENT.read_text()) if DOCUMENT.exists() else {}
    DOCUMENT.write_text(written(outcomes, before, date))


def _made(outcomes: Iterable[Outcome], date: str) -> str:
    count = Counter(each.commit for each in outcomes)
    commits = ", ".join(f"{commit} ({number} cells)" for commit, number in sorted(count.items()))
    return f"Last run {date}, at {commits}." if commits else ""


def _shown(found: Outcome) -> str:
    words = " ".join([found.text, f"**{'; '.join(found.faults)}**" if found.faults else ""])
    return " ".join(words.replace("|", "/").split())  # one line of a table
