"""Character devices of macvtaps, as a kubelet gives them to pods."""

from __future__ import annotations

import contextlib
import os
import random
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from handler.devices import macvtap


def free_minor() -> int:
    major = macvtap.driver()
    if major is None:
        pytest.skip("the kernel has no driver for macvtaps")
    return random.choice([each for each in range(5, 30) if not Path(f"/sys/dev/char/{major}:{each}").is_symlink()])


@contextlib.contextmanager
def given_by_the_kubelet() -> Iterator[int]:
    minor = free_minor()
    path = Path(macvtap.path_of(minor))
    os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(macvtap.driver() or 0, minor))
    try:
        yield minor
    finally:
        path.unlink()
