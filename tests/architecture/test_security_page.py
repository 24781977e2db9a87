from __future__ import annotations

import ast
import re
from functools import lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "security.md"
TESTS = ROOT / "docs" / "security-tests.md"
NAMED = re.compile(r"`(?P<file>[\w/.-]+\.py)?(?:::(?P<test>test_\w+)(?:\[[^`]*\])?)?`")
HEADER = "| | threat | what stops it |"
CELL = re.compile(r"(?<!\\)\|")
LINE = re.compile(r"^- \*\*(\w+)\*\*: (.*)$", re.MULTILINE)
MAX_WORDS = 2800
"""Before the table: an administrator reads it in ten minutes."""


def threats() -> list[str]:
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


def tried() -> list[tuple[str, str]]:
    return LINE.findall(TESTS.read_text(encoding="utf-8"))


def absent(row: str) -> list[str]:
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


def test_an_administrator_reads_the_page_in_ten_minutes() -> None:
    text, _, _ = PAGE.read_text(encoding="utf-8").partition("\n## The threats\n")

    assert len(text.split()) <= MAX_WORDS


@pytest.mark.parametrize("row", threats(), ids=lambda row: row[2:60])
def test_a_row_has_number_threat_and_defense(row: str) -> None:
    cells = [cell.strip() for cell in CELL.split(row.strip().strip("|"))]

    assert len(cells) == 3
    assert all(cells)


def test_each_threat_has_its_line_of_tests() -> None:
    assert [number for number, _ in tried()] == [CELL.split(row)[1].strip() for row in threats()]


@pytest.mark.parametrize(("number", "tests"), tried(), ids=lambda value: value[:12])
def test_the_tests_of_a_threat_exist(number: str, tests: str) -> None:
    assert NAMED.search(tests), number
    assert absent(tests) == []


def test_missing_paths_are_found() -> None:
    assert absent("`unit/nowhere.py`") == ["`unit/nowhere.py`"]
    assert absent("`architecture/test_security_page.py::test_there_are_threats`, `::test_there_are_none`") == ["`::test_there_are_none`"]
