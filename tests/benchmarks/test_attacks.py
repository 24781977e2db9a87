from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.testbed import layout

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_an_attack_is_measured(tmp_path: Path) -> None:
    output = tmp_path / "attacks.json"
    command = [sys.executable, "-m", "benchmarks.attacks", "--only=half-heads,key-updates", "--seconds=3", f"--python={sys.executable}"]
    done = subprocess.run([*command, f"--output={output}"], capture_output=True, text=True, cwd=layout.REPOSITORY, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    results = json.loads(output.read_text())["results"]
    assert [each["name"] for each in results] == ["half-heads × 480", "half-heads × 2000 from 200", "key-updates × 8 from 8"]
    for each in results:
        assert each["connections"] > 0
        for served in (each["kept"], each["new"]):
            assert served["answers"] > 0
            assert served["failures"] == []
