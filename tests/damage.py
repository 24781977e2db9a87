"""Marks failures that no test run may hide: two QEMU processes of one VM, a lost write, wrong bytes.

Other failed tests on the cluster or with guests run once more (``tests/flakes.py``)::

    with never_again("two QEMU"):
        assert len(source.qemu() + target.qemu()) == 1
"""

from __future__ import annotations

from types import TracebackType
from typing import Final, Literal

import pytest

Damage = Literal["two QEMU", "a lost write", "wrong bytes"]
_MARK: Final = "never run again: "


class never_again:  # noqa: N801  # it reads as a statement: with never_again("two QEMU"):
    """Marks a failure asserted by the block itself, but not by a function that it calls, which may be a timeout."""

    def __init__(self, damage: Damage) -> None:
        self._damage = damage

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if trace is None or error is None:
            return
        is_own = trace.tb_next is None
        is_told = trace.tb_next is not None and trace.tb_next.tb_next is None and isinstance(error, pytest.fail.Exception)
        if is_told or (is_own and isinstance(error, AssertionError)):
            error.add_note(_MARK + self._damage)


def damage_of(error: BaseException | None) -> str:
    seen: set[int] = set()
    todo = [error]
    while todo:
        each = todo.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        for note in getattr(each, "__notes__", ()):
            if note.startswith(_MARK):
                return str(note.removeprefix(_MARK))
        todo += [each.__cause__, each.__context__, *(each.exceptions if isinstance(each, BaseExceptionGroup) else ())]
    return ""
