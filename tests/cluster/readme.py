"""Runs the first session's commands as README.md shows them."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from tests.cluster.kube import ROOT, Kubectl


def block(word: str) -> str:
    found = re.findall(r"^```sh\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    (one,) = (each for each in found if word in each)
    return str(one)


def environment_of(kubectl: Kubectl, directory: Path) -> dict[str, str]:
    """Return an environment with kubectl in PATH, and a kubeconfig in ``directory`` that means the test's namespace."""
    kubeconfig = directory / "config"
    kubeconfig.write_bytes(kubectl.kubeconfig.read_bytes())
    path = f"{Path(kubectl.binary).parent}:{kubectl.environment['PATH']}"
    given = {**os.environ, "KUBECONFIG": str(kubeconfig), "PATH": path}
    subprocess.run(["kubectl", "config", "set-context", "--current", f"--namespace={kubectl.namespace}"], env=given, check=True)
    return given


def run(line: str, environment: dict[str, str]) -> str:
    done = subprocess.run(["sh", "-ec", line], env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout
