"""Marks what no run of tests may be silent about: two QEMU of one machine, a lost write, wrong bytes. Such a test never runs again.

Any other test on the cluster or with guests runs once more if it fails (``tests/flakes.py``), since a starved machine makes it late. These
faults do not come from that, and they are rare, so that the second run would hide them::

    with never_again("two QEMU"):
        assert len(source.qemu() + target.qemu()) == 1
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Literal

import pytest

Damage = Literal["two QEMU", "a lost write", "wrong bytes"]
_MARK: Final = "never run again: "


@contextmanager
def never_again(damage: Damage) -> Iterator[None]:
    """Mark a failure of what is within."""
    try:
        yield
    except (AssertionError, pytest.fail.Exception) as error:
        error.add_note(_MARK + damage)
        raise


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
