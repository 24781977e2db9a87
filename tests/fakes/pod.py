from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def pod_directories(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    from apiserver.apis.virt.places import layout

    def move(**directories: Path) -> None:
        for name, path in directories.items():
            monkeypatch.setattr(layout, f"{name}_DIRECTORY", str(path))

    return move


@pytest.fixture
def overlays(tmp_path: Path, pod_directories: Callable[..., None]) -> Path:
    pod_directories(OVERLAYS=tmp_path)
    return tmp_path
