from __future__ import annotations

from pathlib import Path

import pytest

from tests.host.launcher import guest, sandbox


@pytest.fixture(scope="session")
def test_guest() -> guest.Guest:
    return guest.build()


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("program")
    sandbox.install(directory)
    return directory
