from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from apiserver import logs


def record(
    level: int = logging.INFO, message: str = "the guest of %s\nis running", *, failed: bool = False, **extra: Any
) -> logging.LogRecord:
    try:
        raise ValueError("no socket")
    except ValueError:
        made = logging.getLogger("launcher.main").makeRecord(
            "launcher.main", level, "file.py", 1, message, ("web-1",), sys.exc_info() if failed else None, extra=extra
        )
    made.created = 1_800_000_000.25
    return made


def test_a_line_is_an_object_with_what_extra_holds() -> None:
    assert json.loads(logs.JSONFormatter().format(record(uid="1", path=ValueError("x")))) == {
        "time": "2027-01-15T08:00:00.250+00:00",
        "level": "info",
        "logger": "launcher.main",
        "message": "the guest of web-1\nis running",
        "uid": "1",
        "path": "x",
    }


def test_a_traceback_stays_on_the_line() -> None:
    line = logs.JSONFormatter().format(record(logging.ERROR, failed=True))
    assert "\n" not in line
    assert json.loads(line)["exception"].endswith("ValueError: no socket")


def test_other_formatters_attributes_are_not_logged() -> None:
    made = record()
    logging.Formatter("%(asctime)s %(message)s").format(made)
    assert "asctime" not in json.loads(logs.JSONFormatter().format(made))
    assert "message=" not in logs.TextFormatter().format(made)


def test_for_people_a_line_ends_with_what_extra_holds() -> None:
    said = logs.TextFormatter().format(record(logging.WARNING, "%s is away", uid="1", failed=True)).splitlines()
    assert said[0].partition(" ")[2] == "WARNING web-1 is away uid=1"
    assert said[-1] == "ValueError: no socket"


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    root, other = logging.getLogger(), logging.getLogger("asyncio")
    handlers, levels = root.handlers[:], (root.level, other.level)
    root.handlers[:] = [logging.NullHandler()]
    try:
        yield root
    finally:
        root.handlers[:] = handlers
        root.setLevel(levels[0])
        other.setLevel(levels[1])


def test_a_process_logs_to_standard_error_alone(root: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    for form in (("json",), ("text",), ()):
        logs.configure("info", *form)
        root.debug("no")
        logging.getLogger("asyncio").info("no")
        root.info("here")
        out, line = capsys.readouterr()
        assert (out, line.count("\n"), line.startswith("{")) == ("", 1, form != ("text",))


@pytest.mark.parametrize("level", ["debug", "INFO", "Warning", "error"])
def test_a_level_may_be_written_in_any_case(level: str) -> None:
    parser = argparse.ArgumentParser()
    logs.add_level_flag(parser.add_argument)
    assert parser.parse_args([f"--log-level={level}"]).log_level == level.lower()
    assert parser.parse_args([]).log_level == "info"
