"""Passes signals on to a program's commands, as SIGTERM: ``make`` passes on no other."""

import contextlib
import os
import pathlib
import signal
import subprocess
from collections.abc import Sequence
from types import FrameType, TracebackType
from typing import Any, Self

_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class Commands:
    def __init__(self) -> None:
        self._started: list[subprocess.Popen[bytes]] = []
        self._is_ending = False

    def __enter__(self) -> Self:
        chosen = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]  # as by nohup
        self._before = {number: signal.signal(number, self._pass_on) for number in chosen}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def run(self, words: Sequence[str], **options: Any) -> int:
        return as_of_a_shell(self.start(words, **options).wait())

    def start(self, words: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(words, **options)
        self._started.append(process)
        if self._is_ending:
            end(process)
        return process

    def _pass_on(self, number: int, _: FrameType | None) -> None:
        self._is_ending = True
        for process in self._started:
            if not (number == signal.SIGINT and _has_terminals_signals(process)):
                end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):  # just waited for
            (os.killpg if os.getpgid(process.pid) == process.pid else os.kill)(process.pid, signal.SIGTERM)


def _has_terminals_signals(process: subprocess.Popen[bytes]) -> bool:
    """Return whether Ctrl-C reaches a process. pytest tears down after SIGINT, not after SIGTERM."""
    try:
        with pathlib.Path("/dev/tty").open("rb") as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgid(process.pid)
    except OSError:
        return False


def as_of_a_shell(status: int) -> int:
    return status if status >= 0 else 128 - status
