"""Directories of a run: cosmic-ray in the cache, and a copy of the work tree."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.testbed import caching, installing, layout

PINS: Final = Path(__file__).with_name("requirements.txt")
TITLE: Final = "Fetch cosmic-ray"


def requirements() -> list[str]:
    with (layout.REPOSITORY / "pyproject.toml").open("rb") as file:
        return [str(each) for each in tomllib.load(file)["dependency-groups"]["mutants"]]


def packages() -> Path:
    identity = f"{sys.implementation.cache_tag} {platform.machine()}".encode() + PINS.read_bytes()
    wanted = layout.cache() / f"cosmic-ray-{hashlib.sha256(identity).hexdigest()[:12]}"
    return caching.once(wanted, TITLE, lambda directory: installing.install(directory, PINS))


@contextlib.contextmanager
def copied() -> Iterator[Path]:
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, check=True, capture_output=True, text=True, cwd=layout.REPOSITORY).stdout.split("\0")
    with tempfile.TemporaryDirectory(prefix="mutants-") as directory:
        for name in filter(None, names):
            source, target = layout.REPOSITORY / name, Path(directory, name)
            if source.is_file():  # a deletion need not be committed
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)
        yield Path(directory)


def variables(*paths: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), "PYTHONHASHSEED": "0"}
