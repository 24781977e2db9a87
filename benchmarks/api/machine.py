"""The measurement's machine: processors, memory, and the measured revision."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.reference_server.programs import ProgramFailed
from tests.testbed import image_python, layout


def interpreter(named: str = "") -> str:
    """Return the path ``named``, or that of the Python of virt-api's image. Raises StepFailed without it."""
    return named or str(image_python.ensure())


def describe(revision: str, python: str) -> dict[str, Any]:
    model = [line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    command = ["git", "describe", "--always", *([revision] if revision else ["--dirty"])]
    described = subprocess.run(command, capture_output=True, text=True, check=False, cwd=layout.REPOSITORY).stdout.strip()
    versions = "import platform, ssl; print(platform.python_version(), 'with', ssl.OPENSSL_VERSION)"
    return {
        "processors": os.cpu_count(),
        "model": model[0] if model else platform.machine(),
        "kernel": platform.release(),
        "python": subprocess.run([python, "-c", versions], stdout=subprocess.PIPE, text=True, check=True).stdout.strip(),
        "revision": described,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "load_at_start": round(os.getloadavg()[0], 2),
    }


def export(revision: str, directory: Path, python: str) -> Path:
    """Write a revision's sources, by default the work tree's, into the new ``directory``; return it.

    They are compiled for ``python``, to save memory. A ``revision`` with ``/`` that is a directory is returned unchanged. Raises
    ProgramFailed for an unknown one.
    """
    if "/" in revision and Path(revision).is_dir():
        return Path(revision).absolute()
    directory.mkdir()
    source = ["git", "archive", revision]
    if not revision:
        source = ["sh", "-c", "git ls-files -z --cached --others --exclude-standard | tar -c --null --ignore-failed-read -T -"]
    archive = subprocess.Popen(source, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=layout.REPOSITORY)
    unpacked = subprocess.run(["tar", "-x"], stdin=archive.stdout, check=False, cwd=directory)
    if archive.wait() != 0 or unpacked.returncode != 0:
        raise ProgramFailed(f"there is no revision {revision}")
    subprocess.run([python, "-m", "compileall", "-qq", "."], check=False, cwd=directory)
    return directory


def split() -> tuple[frozenset[int], frozenset[int]]:
    """Return one processor's number for the server, and one for all other processes; both empty with only one."""
    available = sorted(os.sched_getaffinity(0))
    if len(available) < 2:
        return frozenset(), frozenset()
    return frozenset(available[:1]), frozenset(available[1:2])


def place() -> str | None:
    """Return a directory in memory with 6 GiB free, so no disk is measured; otherwise None."""
    shared = Path("/dev/shm")
    if shared.is_dir() and shutil.disk_usage(shared).free > 6 << 30:
        return str(shared)
    return None
