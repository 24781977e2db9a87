from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.host.launcher import guest, sandbox
from tests.host.launcher.sandbox import Launcher


@pytest.fixture
def start(program: Path, test_guest: guest.Guest, tmp_path: Path) -> Iterator[Callable[[], Launcher]]:
    launchers: list[Launcher] = []

    def make() -> Launcher:
        launchers.append(Launcher(program, tmp_path / f"pod{len(launchers)}", test_guest))
        return launchers[-1]

    with sandbox.killed_afterwards(launchers):
        yield make
