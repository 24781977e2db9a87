from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.testbed import layout, timed

SPIN = "import time\nwhile time.process_time() < 0.6: pass"
BUSY = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {SPIN!r}], check=True)"


@pytest.mark.parametrize(("command", "status"), [("exit 0", 0), ("exit 3", 3), ("kill -TERM $$", 143)])
def test_the_commands_status_is_kept(command: str, status: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert timed.run("make it", ["sh", "-c", command]) == status
    assert capsys.readouterr().err.startswith("make it: 0 min 0 s, ")


def test_the_processor_time_of_grandchildren_counts() -> None:
    words = [sys.executable, "-m", "tests.testbed.timed", "make it", sys.executable, "-c", BUSY]
    done = subprocess.run(words, cwd=layout.REPOSITORY, capture_output=True, text=True, check=True)
    found = re.search(r"(\d+) CPU-seconds", done.stderr)
    assert found
    assert int(found[1]) >= 1


def test_the_figures_are_in_words() -> None:
    words = timed.describe(125.4, 200.4, 30.2, 1.96)
    assert words.startswith("2 min 5 s, 231 CPU-seconds (200 user, 30 system; without the cluster's processes), load 2.0 on ")


def test_make_keeps_bytecode_outside_the_work_tree(tmp_path: Path) -> None:
    given = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "KUBEVIRT_CACHE": str(tmp_path)}
    words = ["make", "--silent", "--eval", "probe: ; @env", "probe"]
    done = subprocess.run(words, cwd=layout.REPOSITORY, env=given, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert f"PYTHONPYCACHEPREFIX={tmp_path}/bytecode" in lines
    assert not [line for line in lines if line.startswith("PYTHONDONTWRITEBYTECODE=")]


@pytest.mark.parametrize(("given", "known"), [("{state}/kubeconfig", []), ("/a/users/kubeconfig", ["KUBECONFIG=/a/users/kubeconfig"])])
def test_kubeconfig_of_make_env_is_the_own_cluster(tmp_path: Path, given: str, known: list[str]) -> None:
    environment = {**os.environ, "KUBEVIRT_STATE": str(tmp_path), "KUBECONFIG": given.format(state=tmp_path)}
    words = ["make", "--silent", "--eval", "probe: ; @env", "probe"]
    done = subprocess.run(words, cwd=layout.REPOSITORY, env=environment, capture_output=True, text=True, check=True)
    assert [line for line in done.stdout.splitlines() if line.startswith("KUBECONFIG=")] == known


def test_pytest_without_make_keeps_bytecode_too(tmp_path: Path) -> None:
    given = {name: value for name, value in os.environ.items() if name not in {"PYTHONPYCACHEPREFIX", "PYTEST_XDIST_WORKER"}}
    given |= {"PYTHONDONTWRITEBYTECODE": "1", "KUBEVIRT_CACHE": str(tmp_path)}
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--collect-only", "tests/unit/testbed/test_timed.py"]
    subprocess.run(words, cwd=layout.REPOSITORY, env=given, capture_output=True, check=True)
    assert list((tmp_path / "bytecode").rglob("test_timed.*.pyc"))
