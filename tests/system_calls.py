"""Moments of a system call: at them something happens meanwhile, the kernel refuses, or the process is killed.

The interpreter tells (``sys.setprofile``) of each call of a function that is written in C, whoever makes it and by whatever name, so
nothing is put in its place, and the call that a test is about must have been made.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final

CALLED: Final = "c_call"
RETURNED: Final = "c_return"


@contextlib.contextmanager
def at(function: Callable[..., Any], act: Callable[[], object], moment: str = CALLED) -> Iterator[None]:
    """Do something each time that this thread calls a function of C; what ``act`` raises, the call raises, and nothing is done any more.

    Args:
        function: such as ``os.link``.
        act: what is done; calls of its own do not count.
        moment: before the call, or when it has returned.
    """
    made = 0

    def told(_frame: FrameType, event: str, argument: Any) -> None:
        nonlocal made
        if event == moment and argument is function:
            made += 1
            act()

    before = sys.getprofile()
    sys.setprofile(told)
    try:
        yield
    finally:
        sys.setprofile(before)
    assert made, f"{function.__name__} was not called"


@contextlib.contextmanager
def refused(function: Callable[..., Any], number: int) -> Iterator[None]:
    """Have the first call of a function fail with this number of ``errno``."""

    def refuse() -> None:
        raise OSError(number, os.strerror(number))

    with at(function, refuse):
        yield


def killed_at(function: Callable[..., Any], work: Callable[[], object]) -> None:
    """Have a process do the work that is killed where it would call a function for the first time."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads of other tests: what is forked here needs nothing of theirs
        child = os.fork()
    if not child:
        try:
            with at(function, lambda: os.kill(os.getpid(), signal.SIGKILL)):
                work()
        finally:
            os._exit(errno.ENOSYS)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), f"{function.__name__} was not called"
    assert os.WTERMSIG(status) == signal.SIGKILL
