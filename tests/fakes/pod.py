"""A pod's file system in other directories."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def pod_directories(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that moves directories of the pod (``layout.…_DIRECTORY``), which tests lack."""
    from apiserver.apis.virt.places import layout

    def move(**directories: Path) -> None:
        for name, path in directories.items():
            monkeypatch.setattr(layout, f"{name}_DIRECTORY", str(path))

    return move


@pytest.fixture
def overlays(tmp_path: Path, pod_directories: Callable[..., None]) -> Path:
    """Use ``tmp_path`` as the directory of the pod's overlays, and return it."""
    pod_directories(OVERLAYS=tmp_path)
    return tmp_path
