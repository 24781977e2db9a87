"""What no second run may hide is known from an error, wherever it is in it."""

from __future__ import annotations

import pytest

from tests.damage import damage_of, never_again


def raised(error: BaseException) -> BaseException:
    with pytest.raises(type(error)) as caught, never_again("wrong bytes"):
        raise error
    return caught.value


def test_only_what_was_asserted_within_is_marked() -> None:
    assert damage_of(raised(AssertionError("a"))) == "wrong bytes"
    assert damage_of(raised(pytest.fail.Exception("a"))) == "wrong bytes"
    assert damage_of(raised(TimeoutError())) == ""
    assert damage_of(None) == ""


def test_a_mark_is_found_in_causes_contexts_and_groups() -> None:
    marked = raised(AssertionError("a"))
    caused, met = ValueError(), KeyError()
    caused.__cause__, met.__context__ = marked, caused
    assert damage_of(ExceptionGroup("tasks", [OSError(), met])) == "wrong bytes"
    marked.__context__ = met  # a circle ends
    assert damage_of(marked) == "wrong bytes"
    assert damage_of(ExceptionGroup("tasks", [OSError(), ValueError()])) == ""
