"""docs/security.md names for each threat what stops it and the test that tries it: both are there."""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "security.md"
NAMED = re.compile(r"`(?P<file>[\w/.-]+\.py)?(?:::(?P<test>test_\w+)(?:\[[^`]*\])?)?`")
HEADER = "| threat | what stops it | test | before |"


def threats() -> list[str]:
    """Return the rows of every table of threats."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    starts = [number for number, line in enumerate(lines) if line == HEADER]
    rows: list[str] = []
    for start in starts:
        for line in lines[start + 2 :]:
            if not line.startswith("|"):
                break
            rows.append(line)
    return rows


@lru_cache
def functions(file: Path) -> frozenset[str]:
    nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def absent(row: str) -> list[str]:
    """Return what a row names and is not there."""
    found, last = [], None
    for match in NAMED.finditer(row):
        file, test = match["file"], match["test"]
        if file is not None:
            last = next((path for path in (ROOT / "tests" / file, ROOT / file) if path.is_file()), None)
        if (file or test) and (last is None or (test and test not in functions(last))):
            found.append(match[0])
    return found


def test_there_are_threats() -> None:
    assert len(threats()) > 100


@pytest.mark.parametrize("row", threats(), ids=lambda row: row[2:60])
def test_what_a_row_names_is_there(row: str) -> None:
    assert absent(row) == []


@pytest.mark.parametrize("row", threats(), ids=lambda row: row[2:60])
def test_a_row_says_threat_defence_test_and_before(row: str) -> None:
    threat, defence, test, before = (cell.strip() for cell in re.split(r"(?<!\\)\|", row.strip().strip("|")))

    assert threat
    assert defence
    assert NAMED.search(test) or test == "the same"
    assert before


def test_what_is_absent_is_found() -> None:
    assert absent("`unit/nowhere.py`") == ["`unit/nowhere.py`"]
    assert absent("`architecture/test_security_page.py::test_there_are_threats`, `::test_there_are_none`") == ["`::test_there_are_none`"]
