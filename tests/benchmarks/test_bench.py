from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.testbed import image_python, layout, project_images

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def python() -> Path:
    return image_python.ensure()


def test_our_server_is_measured_on_the_python_of_its_image(python: Path, tmp_path: Path) -> None:
    output = tmp_path / "api.json"
    command = [sys.executable, "-m", "benchmarks.api.bench", "--quick", "--rounds=1", "--ops=get", "--servers=reference,ours"]
    done = subprocess.run([*command, f"--output={output}"], capture_output=True, text=True, cwd=layout.REPOSITORY, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(output.read_text())
    assert result["failures"] == {}
    assert result["machine"]["python"].startswith(f"{project_images.PYTHON}.")
    (sample,) = result["samples"]["get"]["ours"]
    assert sample["count"] > 0
    assert result["ratios"]["get"] > 0
    assert "\nget " in done.stdout


def test_images_python_runs_local_sources_with_its_packages(python: Path, tmp_path: Path) -> None:
    (tmp_path / "asked.py").write_text("import orjson, os, sys\nprint([orjson.__file__, os.getcwd(), os.getpid(), sys.argv[1:]])\n")
    process = subprocess.Popen([python, "-m", "asked", "one two", "$x"], stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    said, _ = process.communicate(timeout=30)
    assert said.strip() == repr([f"/{project_images.PACKAGES_PATH}/orjson/__init__.py", str(tmp_path), process.pid, ["one two", "$x"]])
    assert process.returncode == 0


def test_images_python_can_be_terminated(python: Path) -> None:
    with subprocess.Popen([python, "-c", "print('up', flush=True); import time; time.sleep(60)"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == -signal.SIGTERM
    assert not Path("/mnt/usr/bin/python3").exists(), "its mounts are its own"
