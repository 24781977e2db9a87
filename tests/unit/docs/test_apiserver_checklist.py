from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_every_row_names_tests_that_exist_or_says_why_there_is_none() -> None:
    rows = [line for line in (ROOT / "docs/apiserver-checklist.md").read_text().splitlines() if re.match(r"\| [A-Z]+-\d", line)]
    tests = (path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    defined = {name for text in tests for name in re.findall(r"^(?:async )?def (test_\w+)", text, re.MULTILINE)}
    assert len(rows) > 100
    for row in rows:
        named = set(re.findall(r"`(test_\w+)`", row))
        assert named <= defined, (row, named - defined)
        state = row.split("|")[2].strip()
        assert named or state in {"next", "n/a"}, row
