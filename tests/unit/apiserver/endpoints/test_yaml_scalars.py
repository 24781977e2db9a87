"""YAML scalars by Go's rules, with values from ``tests/reference_library/test_yaml.py``."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver.apis.meta.errors import BadRequest
from apiserver.endpoints.yaml_reader import Reader


def read(text: str) -> Any:
    return Reader(text.encode()).document()


@pytest.mark.parametrize(
    ("scalar", "value"),
    [
        ("0o36", 30), ("036", 30), ("0O17", 15), ("0x1F", 31), ("-0b11", -3), ("0b-1", -1), ("1_000", 1000), ("08", 8), (".1_0", 0.1),
        ("1:30", "1:30"), ("1e3", 1000), ("1e400", "1e400"), ("+9223372036854775808", 9223372036854776000), ("+.5", 0.5),
        ("Infinity", "Infinity"),        ("yes", True), ("yEs", "yEs"), ("~", None), ("=", "="), ("2001-01-01", "2001-01-01"),
        ("'0o36'", "0o36"),
        ("!!binary aGk=", "hi"), ("!!str 5", "5"), ('!!int "5"', 5), ("!!float 5", 5),
        ("!x 5", "5"), ("! 5", "5"), ("!!timestamp 2001-1-1", "2001-1-1"),
    ],
)  # fmt: skip
def test_a_scalar_is_what_go_reads(scalar: str, value: Any) -> None:
    found = read(f"a: {scalar}")["a"]
    assert (found, type(found) is bool) == (value, type(value) is bool)


@pytest.mark.parametrize(
    ("scalar", "key"), [("1", "1"), ("0o10", "8"), ("1.50", "1.5"), ("1e3", "1000"), ("1e6", "1e+06"), ("1234567.5", "1.2345675e+06"),
                        ("0.00001", "1e-05"), ("yes", "true"), (".inf", ".inf"), ("16777217.0", "1.6777216e+07"), ("1e39", ".inf")]
)  # fmt: skip
def test_a_key_is_what_go_makes_of_it(scalar: str, key: str) -> None:
    assert read(f"? {scalar}\n: 1") == {key: 1}


@pytest.mark.parametrize("text", ["a: !!int x", "a: !!int 5.0", "a: !!binary a", "a: !!bool 1", "a: .inf", "? ~\n: 1", "a: !!timestamp x"])
def test_scalars_that_go_refuses_are_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        read(text)
