"""The file system of a pod, elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def pod_directories(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return what has directories of the pod (``layout.…_DIRECTORY``) be elsewhere.

    The file system of its container is virt-launcher's environment: QEMU's XML names the same paths, and no test has them.
    """
    from apiserver.apis.virt.places import layout

    def move(**directories: Path) -> None:
        for name, path in directories.items():
            monkeypatch.setattr(layout, f"{name}_DIRECTORY", str(path))

    return move


@pytest.fixture
def overlays(tmp_path: Path, pod_directories: Callable[..., None]) -> Path:
    """Return the directory of the pod's overlays, of which none is made where it exists."""
    pod_directories(OVERLAYS=tmp_path)
    return tmp_path
