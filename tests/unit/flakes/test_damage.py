from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.damage import damage_of, never_again


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
