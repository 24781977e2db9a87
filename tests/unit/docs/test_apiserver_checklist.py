"""``docs/apiserver-checklist.md`` is complete, and names tests that exist and run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import Final

from tests import checklist
from tests.checklist import DOCUMENT, ROOT, TESTS, Row
from tests.reference_server.cases import CASES

ROWS: Final = {
    "1.1": {"AGG": "MMMSMMMMSSSS"},
    "1.2": {"DIS": "MMSMMMSMMSO"},
    "1.3": {"OAS": "MMMMMMMMMSSMS"},
    "1.4": {"NEG": "MMMMMMOOSSSSSMSS"},
    "1.5": {
        "REQ": "MMMMSMMSMSM",
        "CRE": "MMMMMMMMMSSS",
        "GET": "MM",
        "UPD": "MMMMMMMM",
        "PAT": "MMMMMM",
        "DEL": "MMSMMMS",
        "DRY": "M",
        "FV": "MM",
        "FM": "M",
        "WRN": "S",
    },
    "1.6": {"LST": "MMMMMMMMMMSOS"},
    "1.7": {"WCH": "MMMMMMMSMMMSMSMSSM"},
    "1.8": {"TBL": "MMMSS", "POM": "MM"},
    "1.9": {"META": "MMMMMMMMMMSM"},
    "1.10": {"SSA": "MMMMMMMMMMMMMMMMMSM"},
    "1.11": {"SUB": "MMSMMMSMS"},
    "1.12": {"ERR": "MMMMMMMM"},
    "1.13": {"AUN": "MMMMMSMMMSS"},
    "1.14": {"AUZ": "MMSMMMS", "IMP": "S"},
    "1.15": {"ADM": "MMMSSMMSO", "QUO": "S"},
    "1.16": {"FLW": "SSS", "TMO": "M", "AUD": "S", "SHD": "MOS"},
    "1.17": {"HLT": "MS", "MET": "SSO", "TRC": "O", "DBG": "O", "FLG": "S"},
    "1.18": {"STO": "MMMMSSOMSMSM"},
    "1.19": {"VER": "SSSO"},
}
MISSING: Final = {
    "NEG-07": "metadata alone in protobuf saves a controller bytes, and costs us a second encoding of everything",
    "TRC-01": "the chart could not enable it; the log has slow requests with their audit ids, and metrics the times of etcd and webhooks",
}
SKIPPING: Final = {"skip", "skipif", "xfail", "importorskip"}
SLOW: Final = {"slow", "cluster", "host"}


def _expected() -> Iterator[tuple[str, str, str]]:
    for section, kinds in ROWS.items():
        for kind, marks in kinds.items():
            for number, mark in enumerate(marks, 1):
                yield section, f"{kind}-{number:02}", mark


def _found() -> list[Row]:
    return checklist.rows(DOCUMENT.read_text(), TESTS.read_text())


@cache
def _functions(file: str) -> dict[str, set[str]]:
    """Return the words of each of a file's functions, by name: its marks, the file's marks, and its calls that skip."""
    tree = ast.parse((ROOT / file).read_text())
    common: set[str] = set()
    for each in tree.body:
        if isinstance(each, ast.Assign) and any(isinstance(target, ast.Name) and target.id == "pytestmark" for target in each.targets):
            common |= _attributes(each.value)
    found = {}
    for each in tree.body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            marks = {name for decorator in each.decorator_list for name in _attributes(decorator)}
            called = {name for statement in each.body for name in _attributes(statement)} & SKIPPING
            found[each.name] = common | marks | called
    return found


def _attributes(node: ast.AST) -> set[str]:
    return {
        each.attr
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute) and re.fullmatch(r"pytest(\.mark)?", ast.unparse(each.value))
    }


def test_every_row_is_there_once_in_its_section_with_its_mark() -> None:
    assert [(each.section, each.id, each.mark) for each in _found()] == list(_expected())


def test_lines_of_tests_are_in_the_order_of_the_rows() -> None:
    ids = re.findall(r"^- `([^`]+)`", TESTS.read_text(), re.MULTILINE)

    assert ids == [each.id for each in _found() if each.tests]


def test_every_test_that_is_named_exists_and_is_not_skipped() -> None:
    cases = {case.name for case in CASES}
    for row in _found():
        for test in row.tests:
            file, _, name = test.partition("::")
            name, _, case = name.rstrip("]").partition("[")
            assert name in _functions(file), (row.id, test)
            assert not _functions(file)[name] & SKIPPING, (row.id, test)
            assert not case or (name == "test_ours_answers_as_the_reference_server_does" and case in cases), (row.id, test)
        assert len(row.tests) == len(set(row.tests)), row.id


def test_every_row_says_what_holds_and_how_that_is_known() -> None:
    for row in _found():
        assert row.what, row.id
        assert row.verdict in {"done", "differs", "n/a", "missing"}, (row.id, row.state)
        assert bool(row.reason) == (row.verdict != "done"), (row.id, row.state)
        assert bool(row.tests) == (row.verdict in {"done", "differs"}), (row.id, row.state)


def test_a_row_without_a_test_in_make_check_shows() -> None:
    for row in _found():
        marks = [_functions(file)[name.partition("[")[0]] for file, _, name in (each.partition("::") for each in row.tests)]
        assert row.is_slow == (bool(marks) and all(each & SLOW for each in marks)), (row.id, row.state)


def test_nothing_is_missing_but_what_is_known_to_be() -> None:
    missing = {each.id: each.mark for each in _found() if each.verdict == "missing"}
    assert set(missing) == set(MISSING)
    assert set(missing.values()) <= {"O"}


def test_row_with_a_failed_or_missing_test_is_reported() -> None:
    rows = checklist.rows(
        "## 1.1 X\n| A-01 | M | a | |\n| A-02 | S | b | * |",
        "- `A-01`: `test_x.py::test_a`, `unit/test_y.py::test_b`\n- `A-02`: `test_x.py::test_c`",
    )
    assert rows[0].tests == ("tests/component/apiserver/test_x.py::test_a", "tests/unit/test_y.py::test_b")
    a, b = rows[0].tests
    assert checklist.shortcomings(rows, {a: {"passed"}}, everything=False) == []
    assert len(checklist.shortcomings(rows, {a: {"passed"}}, everything=True)) == 1
    assert checklist.shortcomings(rows, {a: {"passed"}, b: {"failed"}}, everything=False) == [f"A-01 M: a: {b}"]
    assert checklist.shortcomings(rows, {}, everything=False) == ["A-01 M: a: no test was run"]
