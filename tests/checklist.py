"""Rows of ``docs/apiserver-checklist.md`` with their tests.

``python -m tests.checklist`` prints rows without a passing test of ``make check``; with ``--all`` it runs all tests.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
DOCUMENT: Final = ROOT / "docs" / "apiserver-checklist.md"
TESTS: Final = ROOT / "docs" / "apiserver-checklist-tests.md"
USUAL: Final = "tests/component/apiserver/"
QUICK: Final = "not slow and not cluster and not host"


@dataclass(frozen=True)
class Row:
    section: str
    id: str
    mark: str
    """M in a row without one."""
    what: str
    state: str
    tests: tuple[str, ...]

    @property
    def verdict(self) -> str:
        return re.split(r"[*:]", self.state)[0]

    @property
    def reason(self) -> str:
        return self.state.partition(":")[2].strip()

    @property
    def is_slow(self) -> bool:
        return self.state.split(":")[0].endswith("*")


def rows(text: str, of_tests: str) -> list[Row]:
    """Return the rows of a checklist, with the tests that the text ``of_tests`` names for each."""
    tests = named(of_tests)
    found: list[Row] = []
    section = ""
    for line in text.splitlines():
        if heading := re.match(r"## (1\.\d+) ", line):
            section = heading[1]
        elif line.startswith("|") and not line.startswith(("| row ", "|---")):
            _, id_, mark, what, state, _ = (each.strip() for each in line.split("|"))
            state = f"done{state}" if state in {"", "*"} else state
            found.append(Row(section, id_, mark or "M", what, state, tests.get(id_, ())))
    return found


def named(of_tests: str) -> dict[str, tuple[str, ...]]:
    lines = re.findall(r"^- `([^`]+)`: (.*)$", of_tests, re.MULTILINE)
    return {id_: tuple(_node(each) for each in re.findall(r"`([^`]+::[^`]+)`", tests)) for id_, tests in lines}


def _node(name: str) -> str:
    file = name.partition("::")[0]
    return f"tests/{name}" if "/" in file else f"{USUAL}{name}"


class Recorder:
    def __init__(self) -> None:
        self.outcomes: dict[str, set[str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or not report.passed:
            for name in {report.nodeid, report.nodeid.partition("[")[0]}:
                self.outcomes.setdefault(name, set()).add(report.outcome)


def shortcomings(found: Iterable[Row], outcomes: dict[str, set[str]], *, everything: bool) -> list[str]:
    lines = []
    for row in found:
        if row.verdict not in {"done", "differs"} or (row.is_slow and not everything):
            continue
        bad = [test for test in row.tests if outcomes.get(test, {"passed"}) != {"passed"}]
        if bad or not any(test in outcomes for test in row.tests):
            lines.append(f"{row.id} {row.mark}: {row.what}: {', '.join(bad) or 'no test was run'}")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.checklist", description=__doc__)
    parser.add_argument("--all", action="store_true", help="also the slow tests and those that need the cluster")
    parser.add_argument("rows", nargs="*", metavar="ROW", help="only these, STO-05 or STO; default: all")
    given = parser.parse_args()
    wanted = [each for each in rows(DOCUMENT.read_text(), TESTS.read_text()) if not given.rows or each.id.startswith(tuple(given.rows))]
    names = sorted({test for row in wanted for test in row.tests})
    recorder = Recorder()
    pytest.main(["-q", "-n", "2", *(() if given.all else ("-m", QUICK)), *names], plugins=[recorder])
    lines = shortcomings(wanted, recorder.outcomes, everything=given.all)
    missing = [f"{row.id} {row.mark} is missing: {row.what}: {row.reason}" for row in wanted if row.verdict == "missing"]
    print(*lines, *missing, f"{len(wanted)} rows, {len(lines)} without a passing test, {len(missing)} missing", sep="\n")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
