"""Sockets in another network namespace, made by a process that stays in its own."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from handler.probes.node_sockets import OWN, NodeSockets

pytestmark = [pytest.mark.host, pytest.mark.timeout(60)]

SERVE = "import socket, sys; s = socket.create_server(('127.0.0.1', 8080)); print('up', flush=True); sys.stdin.read()"


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    command = ["unshare", "--net", "sh", "-c", f'ip link set lo up && exec python3 -c "{SERVE}"']
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        yield Path(f"/proc/{process.pid}/ns/net")
        process.kill()


def test_socket_is_in_the_other_network_and_the_process_not(elsewhere: Path) -> None:
    before = OWN.stat().st_ino
    sockets = NodeSockets(node=elsewhere)
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    with sockets.make(socket.AF_INET) as made:
        made.connect(("127.0.0.1", 8080))
        assert OWN.stat().st_ino == before != elsewhere.stat().st_ino
    with pytest.raises(OSError, match="refused"), socket.create_connection(("127.0.0.1", 8080)):
        pass
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors


def test_invalid_network_namespace_is_refused_without_change(tmp_path: Path) -> None:
    before = OWN.stat().st_ino
    (tmp_path / "net").touch()
    for node in (tmp_path / "net", tmp_path / "none"):
        with pytest.raises(OSError):  # noqa: PT011 - the number differs from kernel to kernel
            NodeSockets(node=node).make(socket.AF_INET)
    assert OWN.stat().st_ino == before


def test_process_that_cannot_return_exits(elsewhere: Path, tmp_path: Path) -> None:
    (tmp_path / "own").touch()
    if (child := os.fork()) == 0:
        try:
            NodeSockets(node=elsewhere, own=tmp_path / "own").make(socket.AF_INET)
        except SystemExit:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
