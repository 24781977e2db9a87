"""Go programs, built into the cache on first use."""

from __future__ import annotations

import pathlib
import subprocess
from collections.abc import Sequence
from typing import Any, Final

import orjson

from tests.testbed import build

HELM: Final = build.GoProgram("helm4", "4.2.4", ("helm.sh/helm/v4/cmd/helm", "."), module="tests/clients/go")
"""With kstatus in the version that this Helm uses."""
ARGO_CD: Final = build.GoProgram("argocd-checks", "3.5.7", (".",), module="tests/clients/argocd")


def helm() -> pathlib.Path:
    return HELM.binary().with_name("helm")


def kstatus(objects: Sequence[dict[str, Any]]) -> list[str]:
    lines = b"".join(orjson.dumps(each) + b"\n" for each in objects)
    done = subprocess.run([HELM.binary().with_name("kstatus")], input=lines, capture_output=True, check=True, timeout=60)
    return [orjson.loads(line)["status"] for line in done.stdout.splitlines()]


def bundled_check(kind: str) -> str:
    """Return Argo CD's own health check in Lua for a kind such as ``kubevirt.io/VirtualMachine``."""
    return subprocess.run([ARGO_CD.binary(), f"{kind}/health.lua"], capture_output=True, check=True, text=True, timeout=60).stdout
