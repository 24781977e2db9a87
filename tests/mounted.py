"""Volumes of Secrets and ConfigMaps in the kubelet's layout (its atomic writer)."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_COUNT: Final = itertools.count()


def mount(directory: Path, values: Mapping[str, bytes]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    link = directory / "..data"
    before = link.readlink() if link.is_symlink() else None
    current = directory / f"..2026_01_01_00_00_00.{next(_COUNT)}"
    current.mkdir()
    for name, value in values.items():
        (current / name).write_bytes(value)
    following = directory / "..data_tmp"
    following.symlink_to(current.name)
    following.rename(link)
    for each in directory.iterdir():
        if not each.name.startswith("..") and each.name not in values:
            each.unlink()
    for name in values:
        if not (directory / name).is_symlink():
            (directory / name).symlink_to(f"..data/{name}")
    if before is not None:
        shutil.rmtree(directory / before)
