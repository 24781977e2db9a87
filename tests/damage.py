"""Marks what no run of tests may be silent about: two QEMU of one machine, a lost write, wrong bytes. Such a test never runs again.

Any other test on the cluster or with guests runs once more if it fails (``tests/flakes.py``), since a starved machine makes it late. These
faults do not come from that, and they are rare, so that the second run would hide them::

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
    """Marks a failure that the block itself asserts. One of a function that the block calls, which may have waited in vain, is none."""

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
    """Return the damage that an error, one of its causes or one of its parts is marked with; empty: none is."""
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
