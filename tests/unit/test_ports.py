from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ports

TOP = Path(__file__).parents[2]


def test_a_port_does_not_come_again_before_all_others_did() -> None:
    drawn = [ports.free_port() for _ in range(ports.BLOCK // 2)]
    assert len(set(drawn)) == len(drawn)
    assert set(drawn) <= set(ports.RANGE)


def test_other_processes_have_other_ports_a_forked_child_too() -> None:
    here = {ports.free_port() // ports.BLOCK}
    script = "import os; from tests.ports import free_port; print(free_port()); os.fork(); print(free_port(), flush=True)"
    child = subprocess.run([sys.executable, "-c", script], cwd=TOP, env=os.environ, check=True, capture_output=True, text=True)
    blocks = {int(each) // ports.BLOCK for each in child.stdout.split()}
    assert len(blocks) == 2
    assert not blocks & here


def test_used_port_is_not_handed_out() -> None:
    number = ports.free_port()
    with socket.create_server(("127.0.0.1", number)):
        assert number not in {ports.free_port() for _ in range(2 * ports.BLOCK - 10)}


def test_claims_of_all_ports_are_told() -> None:
    start = next(ports.claimed(ports.RANGE)) // ports.BLOCK * ports.BLOCK
    with pytest.raises(OSError, match=f"have all ports from {start}"):
        ports.claimed(range(start, start + ports.BLOCK))
