from __future__ import annotations

import json

import pytest

from launcher.main.decisions import import_reports
from launcher.main.decisions.import_reports import MAX_BYTES, MAX_MESSAGE, Progress, Result


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ({"phase": "Downloading", "bytes": 5, "total": 9}, Progress("Downloading", 5, 9)),
        ({"phase": "Converting", "bytes": 5, "total": None}, Progress("Converting", 5, 0)),
        ({"phase": "Downloading", "bytes": -1, "total": 1 << 99}, Progress("Downloading", 0, MAX_BYTES)),
        ({"phase": "Exploding"}, None),
        ({"result": "Succeeded", "message": "!"}, Result("")),
        ({"result": "Failed", "message": "no such file"}, Result("no such file")),
        ({"result": "Failed"}, Result("it failed")),
        ({"result": "Failed", "message": "a\nb"}, Result("a | b")),
    ],
)
def test_a_line_is_a_report(line: object, expected: Progress | Result | None) -> None:
    assert import_reports.read(json.dumps(line).encode()) == expected


def test_a_message_is_bounded() -> None:
    found = import_reports.read(json.dumps({"result": "Failed", "message": "x" * 9999}).encode())
    assert isinstance(found, Result)
    assert len(found.failure) <= MAX_MESSAGE


@pytest.mark.parametrize("line", [b"", b"x", b"[]", b"null", b"5", b"\xff", b"[" * 8000, b'{"phase": []}', b'{"phase": "Downloading"}'])
def test_malformed_import_reports_are_refused(line: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # whatever it says
        import_reports.read(line)


@pytest.mark.parametrize(
    ("code", "result", "why"),
    [
        (0, Result(""), ""),
        (1, Result("no such file"), "no such file"),
        (0, Result("no such file"), "no such file"),
        (1, Result(""), "the importer exited with status 1 and no message"),
        (0, None, "the importer exited with status 0 and no message"),
        (-9, None, "the importer exited with status -9 and no message: memory?"),
    ],
)
def test_why_an_import_failed(code: int, result: Result | None, why: str) -> None:
    assert import_reports.failure(code, result) == why
