"""Kills a process of virt-handler's code at each of its lines."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import FrameType, FunctionType
from typing import Any, Final

KILLED: Final = 9
FAILED: Final = 1


def killed_at(step: int, call: Callable[[], object], *functions: Callable[..., object]) -> bool:
    """Run ``call`` in a child process that ends before line ``step`` (from 0) run in ``functions``; return False if it runs fewer."""
    if child := os.fork():
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code in (0, KILLED), f"the call failed before step {step}"
        return code == KILLED
    left, codes = [step], {each.__code__ for each in functions if isinstance(each, FunctionType)}

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code not in codes:
            return None
        if event == "line":
            left[0] -= 1
            if left[0] < 0:
                os._exit(KILLED)
        return trace

    sys.settrace(trace)
    try:
        call()
    except BaseException:  # noqa: BLE001  # this process is a copy of pytest
        os._exit(FAILED)
    os._exit(0)
