"""One SIGTERM to the first process of a PID namespace, at every moment of the start."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launcher.main.decisions import life
from launcher.protocol import codec, messages
from tests.given_time import given, look
from tests.host.launcher import guest, sandbox
from tests.host.launcher.sandbox import Launcher, a_tiny_machine

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]
Start = Callable[[], Launcher]

SECONDS = 3.0
"""Given time (tests/given_time.py) for a pod's end, added to a whole start's."""
MOMENTS = (0.0, 0.005, 0.01, 0.02, 0.04, 0.08, 0.12, 0.16, 0.24, 0.32, 0.48, 0.64, 1.0)


@pytest.fixture
def start(program: Path, test_guest: guest.Guest, tmp_path: Path) -> Iterator[Start]:
    launchers: list[Launcher] = []

    def make() -> Launcher:
        launchers.append(Launcher(program, tmp_path / f"pod{len(launchers)}", test_guest, first=True))
        return launchers[-1]

    with sandbox.killed_afterwards(launchers):
        yield make


def seconds_to_end(pod: Launcher, bound: float) -> float:
    began = look()
    os.kill(pod.first_process(), signal.SIGTERM)
    pod.wait(bound + 30)
    return given(began, look())


def bound_here(start: Start) -> float:
    began = look()
    pod = start()
    with pod.client() as client:
        client.ask(messages.Sync(a_tiny_machine(), paused=True))
    took = given(began, look())
    pod.kill()
    return SECONDS + took


def test_sigterm_before_it_was_told_what_to_run(start: Start) -> None:
    bound = bound_here(start)
    for moment in MOMENTS:
        pod = start()
        pod.first_process()
        time.sleep(moment)
        assert seconds_to_end(pod, bound) < bound, f"{moment} s after its beginning"
        assert pod.process.returncode == 0
        assert life.NOT_RUN in pod.log.read_text()


def test_sigterm_at_any_moment_of_the_start_ends_the_pod(start: Start) -> None:
    bound = bound_here(start)
    for moment in itertools.chain(MOMENTS, (2.0,)):
        pod = start()
        with pod.socket("launcher.sock") as connection:
            # A guest that stays paused never runs, however far its start has come.
            connection.sendall(codec.encode(messages.Call(1, messages.Sync(a_tiny_machine(), paused=True))))
            time.sleep(moment)
            assert seconds_to_end(pod, bound) < bound, f"{moment} s after it was told to start"
        assert pod.process.returncode == 0
        assert life.NOT_RUN in pod.log.read_text()
