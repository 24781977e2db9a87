from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster import losses
from tests.damage import damage_of, never_again
from tests.host.launcher.observer import observing
from tests.host.launcher.sandbox import Launcher


def caught(run: Callable[[], object]) -> BaseException:
    with pytest.raises((AssertionError, pytest.fail.Exception, TimeoutError)) as error:
        run()
    return error.value


def wrong() -> None:
    with never_again("wrong bytes"):
        assert int("2") == 1


def told() -> None:
    with never_again("wrong bytes"):
        pytest.fail("they are wrong")


def late() -> None:
    with never_again("wrong bytes"):
        assert read() == "them"


def timed_out() -> None:
    with never_again("wrong bytes"):
        raise TimeoutError


def read() -> str:
    raise AssertionError("the console did not show them in time")


def test_only_what_the_block_itself_asserts_is_marked() -> None:
    assert damage_of(caught(wrong)) == "wrong bytes"
    assert damage_of(caught(told)) == "wrong bytes"
    assert damage_of(caught(late)) == ""
    assert damage_of(caught(timed_out)) == ""
    assert damage_of(None) == ""


def test_a_mark_is_found_in_causes_contexts_and_groups() -> None:
    marked = caught(wrong)
    caused, met = ValueError(), KeyError()
    caused.__cause__, met.__context__ = marked, caused
    assert damage_of(ExceptionGroup("tasks", [OSError(), met])) == "wrong bytes"
    marked.__context__ = met
    assert damage_of(marked) == "wrong bytes"
    assert damage_of(ExceptionGroup("tasks", [OSError(), ValueError()])) == ""


class Absent(Launcher):
    def __init__(self, directory: Path) -> None:
        self.run_directory = directory

    def qemu(self) -> list[int]:
        return []


def test_two_qemu_are_told_also_if_the_test_fails_first(tmp_path: Path) -> None:
    def observed() -> None:
        with observing(Absent(tmp_path), Absent(tmp_path)) as watch:
            watch.faults.append("both run")
            raise TimeoutError

    def watched() -> None:
        with losses.runs_once("no-namespace_no-guest") as (watch,):
            watch.most = 2
            raise TimeoutError

    assert [damage_of(caught(each)) for each in (observed, watched)] == ["two QEMU", "two QEMU"]
