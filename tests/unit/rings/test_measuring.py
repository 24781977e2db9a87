from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import parts

pytest_plugins = ["pytester"]

INI = """
    [pytest]
    addopts = -p tests.measuring -p no:schemathesis -p no:anyio
    asyncio_default_fixture_loop_scope = function
"""
SLOW = "import time\n\ndef test_slow():\n    time.sleep(0.3)\n"


@pytest.mark.parametrize("flags", [(), ("-n1",)], ids=["one process", "xdist"])
def test_a_run_writes_how_long_its_modules_took(pytester: pytest.Pytester, flags: tuple[str, ...]) -> None:
    table = pytester.path / "seconds.json"
    table.write_text(json.dumps({"test_gone.py": 9.0, "test_other.py": 8.0}))
    pytester.makeini(INI)
    pytester.makeconftest(f"import pathlib\nfrom tests import parts\n\nparts.SECONDS = pathlib.Path({str(table)!r})\n")
    pytester.makepyfile(test_slow=SLOW, test_quick="def test_quick(): pass", test_other="")
    result = pytester.runpytest_subprocess("--write-seconds", *flags)
    result.assert_outcomes(passed=2)
    found = json.loads(table.read_text())
    assert found["test_slow.py"] >= 0.3
    assert found["test_other.py"] == 8.0
    assert "test_gone.py" not in found


def test_table_lists_modules_that_exist() -> None:
    assert [module for module in parts.seconds() if not (Path(parts.SECONDS).parent / module).exists()] == []
