"""Write certificate files so that readers see a complete set, old or new."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

DATA: Final = "..data"
"""The symlink that the kubelet and :func:`publish` swap."""


def write_file(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Replace one file atomically and durably, never with more permissions than ``mode``."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        _write_new(temporary, content, mode)
        temporary.rename(path)
    finally:
        temporary.unlink(missing_ok=True)
    _sync(path.parent)


def publish(directory: Path, files: Mapping[str, bytes], *, mode: int = 0o600) -> None:
    """Replace a set of files in ``directory`` at once, as the kubelet does; remove earlier sets and all other symlinks.

    Each name is a symlink through ``..data``, a symlink to the set's directory that one rename swaps.
    """
    directory.mkdir(parents=True, exist_ok=True)
    version = directory / f"..{secrets.token_hex(8)}"
    version.mkdir(mode=0o700)
    for name, content in files.items():
        _write_new(version / name, content, mode)
    _sync(version)
    swap = directory / f"..data_{secrets.token_hex(4)}"
    swap.symlink_to(version.name)
    swap.rename(directory / DATA)
    for name in files:
        if not (link := directory / name).is_symlink():
            link.unlink(missing_ok=True)
            link.symlink_to(f"{DATA}/{name}")
    _sync(directory)
    _remove_others(directory, version.name, frozenset(files))


def _remove_others(directory: Path, current: str, names: frozenset[str]) -> None:
    for entry in directory.iterdir():
        if entry.name in {current, DATA} or entry.name in names:
            continue
        if entry.is_symlink():
            entry.unlink()
        elif entry.name.startswith("..") and entry.is_dir():
            shutil.rmtree(entry)


def _write_new(path: Path, content: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
