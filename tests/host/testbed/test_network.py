"""The test bed leaves no mount behind: it has to see one of a directory over itself, which is how ``ip netns add`` makes its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.host

ROOT = Path(__file__).parents[3]
LOOK = (
    "import pathlib, sys; from tests.testbed import network; network._NAMESPACES = pathlib.Path(sys.argv[1]); print(network._is_mounted())"
)


@pytest.mark.parametrize("mount", [True, False])
def test_a_directory_mounted_over_itself_is_seen(tmp_path: Path, *, mount: bool) -> None:
    bind = f"mount --bind {tmp_path} {tmp_path} && " if mount else ""
    command = f'{bind}exec "$0" -c "$1" {tmp_path}'

    seen = subprocess.run(
        ["unshare", "--mount", "sh", "-c", command, sys.executable, LOOK], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout

    assert seen.strip() == str(mount)
