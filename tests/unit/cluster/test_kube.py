from __future__ import annotations

import os
import subprocess
import threading
import tty
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cluster.kube import Console, Kubectl, KubectlError
from tests.given_time import LOOK_SECONDS

KUBECTL = """#!/bin/sh
echo "$*" >>{calls}
case "$*" in
  *--raw*) exit {unserved} ;;
  *apiservice*) echo "Available False since today: no endpoints"; exit ;;
  *pods*) exit ;;
esac
[ "$(grep -c "get vm" {calls})" -gt 1 ] && echo found && exit
echo "error: the server doesn't have a resource type \\"vm\\"" >&2
exit 1
"""


def scripted(directory: Path, *, unserved: int) -> tuple[Kubectl, Path]:
    """Return a kubectl that finds the kind at its second call, and the file of its calls; ``unserved``: exit code of ``get --raw``."""
    program, calls = directory / "kubectl", directory / "calls"
    program.write_text(KUBECTL.format(calls=calls, unserved=unserved))
    program.chmod(0o755)
    return Kubectl(directory / "kubeconfig", "default", str(program)), calls


def test_a_kind_that_is_served_and_not_known_is_asked_for_again(tmp_path: Path) -> None:
    kubectl, calls = scripted(tmp_path, unserved=0)
    assert kubectl("get", "vm") == "found\n"
    assert calls.read_text().splitlines() == [
        "-n default get vm",
        "-n default get --raw /apis/kubevirt.io/v1alpha1",
        "-n default get vm",
    ]


def test_a_kind_that_is_not_served_is_an_error_that_says_why(tmp_path: Path) -> None:
    kubectl, calls = scripted(tmp_path, unserved=1)
    with pytest.raises(KubectlError, match=r"doesn't have a resource type.*Available False since today: no endpoints"):
        kubectl("get", "vm")
    assert calls.read_text().count("get vm") == 1


@pytest.fixture
def terminal() -> Iterator[tuple[Console, int]]:
    controller, other = os.openpty()
    with subprocess.Popen(["sleep", "60"]) as process:
        yield Console(process, controller), other
        process.kill()
    os.close(controller)


def test_console_reads_on_after_silence_and_ends_in_time(terminal: tuple[Console, int]) -> None:
    console, other = terminal
    os.write(other, b"one\n")
    console.expect("one")
    with pytest.raises(AssertionError, match=r"did not show 'two'; last: '\\r\\n'"):
        console.expect("two", timeout=0.1)
    late = threading.Timer(LOOK_SECONDS + 0.3, os.write, (other, b"two\n"))
    late.start()
    assert console.expect("two").string == "\r\ntwo\r\n"
    os.close(other)
    with pytest.raises(AssertionError, match="did not show 'three'"):
        console.expect("three", timeout=3600)


def test_console_replay_is_skipped(terminal: tuple[Console, int]) -> None:
    console, other = terminal
    os.write(other, b"press Enter for a prompt.\ntick 1\ntick 2\n")

    def guest() -> None:
        typed = b""
        while not typed.endswith(b"\n"):
            typed += os.read(other, 100)
        os.write(other, b"tick 3\n" + typed.removeprefix(b"echo ") + b"tick 4\n")

    tty.setraw(other)
    with ThreadPoolExecutor(1) as pool:
        answering = pool.submit(guest)
        console.skip_replay()
        answering.result()
    assert console.expect(r"tick (\d+)").group(1) == "4"
