"""Moments of a system call: tests act at them, let the kernel refuse, or kill the process.

The interpreter reports each call of a C function (``sys.setprofile``), so nothing is replaced.
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
    """Call ``act`` at each call of a C function (``os.link``) by the block, in this thread. AssertionError if it makes none.

    ``moment``: before the call, or after its return. Calls by ``act`` itself do not count. If ``act`` raises, the C function's call
    raises the same, and ``act`` is not called again.
    """
    made = 0

    def profile(_frame: FrameType, event: str, argument: Any) -> None:
        nonlocal made
        if event == moment and argument is function:
            made += 1
            act()

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(before)
    assert made, f"{function.__name__} was not called"


@contextlib.contextmanager
def refused(function: Callable[..., Any], number: int) -> Iterator[None]:
    """Let the first call of a C function in the block fail with OSError ``number``. AssertionError if there is none."""

    def refuse() -> None:
        raise OSError(number, os.strerror(number))

    with at(function, refuse):
        yield


def killed_at(function: Callable[..., Any], work: Callable[[], object]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the forked process does not need other tests' threads
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
