from __future__ import annotations

from typing import Any

import pytest

from apiserver.apis.meta.structure import Shape, check_of


@pytest.mark.parametrize(
    ("shape", "sound", "wrong", "fault"),
    [
        ("text", "x", 1, ("", "must be a string, not an integer")),
        ("boolean", True, 1, ("", "must be a boolean, not an integer")),
        ("int32", 1, 1 << 31, ("", "must be an integer of 32 bits")),
        ("int64", 1 << 31, 1 << 63, ("", "must be an integer of 64 bits")),
        ("intOrString", 1, 1 << 31, ("", "must be an integer of 32 bits")),
        ("intOrString", "25%", True, ("", "must be an integer or a string, not a boolean")),
        ("intOrString", "", "\ud800", ("", "must be Unicode text")),
        ("amount", "1Gi", "much", ("", "must be a quantity such as 512Mi")),
        ("time", "2026-01-01T00:00:00Z", "today", ("", "must be an RFC 3339 time such as 2006-01-02T15:04:05Z")),
        (["a", "b"], "b", "c", ("", "must be one of a, b")),
        ({"[]": "text"}, ["x"], ["x", None], ("[1]", "must be a string, not null")),
        ({"[]": {"[]": "int32"}}, [[1]], [[1], [True]], ("[1][0]", "must be an integer, not a boolean")),
        ({"*": "amount"}, {"memory": 1}, {"memory": "much"}, ("['memory']", "must be a quantity such as 512Mi")),
        ({"*": {"a": "text"}}, {"x": {"a": ""}}, {"x": {}}, ("['x'].a", "is missing")),
        ({"*": "text"}, {}, [], ("", "must be an object, not a list")),
        ({"a": "text", "b?": {"c?": "text"}}, {"a": "", "b": None}, {"a": "", "b": {"c": 1}}, (".b.c", "must be a string, not an integer")),
        ({"a": "text"}, {"a": "", "unknown": 1}, {"a": None}, (".a", "is missing")),
        ({}, {"unknown": 1}, "x", ("", "must be an object, not a string")),
    ],
    ids=str,
)
def test_a_shape_is_the_check_that_it_describes(shape: Shape, sound: Any, wrong: Any, fault: tuple[str, str]) -> None:
    check = check_of(shape)
    assert check(sound) == ()
    assert check(wrong) == (fault,)


def test_anything_is_accepted() -> None:
    assert check_of("anything")({"deep": [object()]}) == ()


def test_unknown_scalar_type_raises_at_once() -> None:
    with pytest.raises(KeyError, match="int16"):
        check_of({"a?": {"[]": "int16"}})
