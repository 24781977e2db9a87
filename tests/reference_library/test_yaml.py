"""Go's YAML parser and ours agree on a table of scalars."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from apiserver.apis.meta.errors import BadRequest
from apiserver.endpoints.yaml_reader import Reader
from tests.reference_library.program import Reference

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SIGNS = ("", "+", "-")
DIGITS = (
    "0", "00", "7", "08", "017", "0o17", "0O17", "0o36", "0o8", "0x1F", "0X1f", "0xg", "0b101", "0B11", "0b2", "0b-1", "0b+10", "0b",
    "1_000", "1__0_", "_1", "0x_f", "0o1_7", "9223372036854775807", "9223372036854775808", "18446744073709551615", "18446744073709551616",
    "1" * 30, "0" * 70 + "7", "1.5", "1.", ".5", "1e3", "1E3", "1e+3", "1.5e-3", ".5e3", "1e", "1e400", "1e21", "1e20", "1_0.5", ".1_0",
    "0.1e-7", "1:30", "190:20:30", "1.2.3", "0x1p3", "1e1_0", ".", "..5", "16777217", "1234567.5", "0.00001", "1e39",
)  # fmt: skip
WORDS = (
    "y", "Y", "yes", "Yes", "YES", "yEs", "true", "True", "TRUE", "tRue", "on", "On", "ON", "n", "no", "NO", "off", "Off", "false", "FALSE",
    "~", "null", "Null", "NULL", "nUll", "", ".inf", "-.Inf", "+.INF", ".nan", ".NaN", "inf", "nan", "NaN", "Infinity", "=", "2001-01-01",
    "2001-1-1", "2001-13-01", "2001-01-01T10:00:00Z", "2001-01-01 10:00:00", "2001-01-01t10:00:00.5+02:00", "2001-02-30", "aGk=", "aGk",
    "a b", "512Mi", "1Gi", "100m", "1d", "0x", "-", "+", "-x", "1,000", "+0x1F", "ü",
)  # fmt: skip
TAGS = ("", "!!str ", "!!int ", "!!float ", "!!bool ", "!!null ", "!!timestamp ", "!!binary ", "!x ", "! ")


def scalars() -> Iterator[str]:
    texts = [*("".join(each) for each in itertools.product(SIGNS, DIGITS)), *WORDS]
    yield from texts
    for text in texts:
        yield from (f'"{text}"', f"'{text}'")
        yield from (f"{tag}{shown}" for tag in TAGS for shown in (text, f'"{text}"'))


def ours(text: str) -> Any:
    try:
        return Reader(text.encode()).document()
    except (BadRequest, yaml.YAMLError):
        return BadRequest


def same(left: Any, right: Any) -> bool:
    return left == right and isinstance(left, bool) == isinstance(right, bool)


@pytest.fixture(scope="module")
def reference() -> Iterator[Reference]:
    with Reference() as running:
        yield running


def test_every_scalar_is_read_as_go_reads_it(reference: Reference) -> None:
    differing = []
    for scalar in dict.fromkeys(scalars()):
        for text in (f"a: {scalar}\n", f"? {scalar}\n: 1\n", f"- {scalar}\n"):
            answer = reference.ask(op="yaml", text=text)
            theirs, found = BadRequest if answer.error else answer.object, ours(text)
            if "\ufffd" in str(theirs):
                assert found is BadRequest, text
            elif not same(found, theirs):
                differing.append((text, found, answer.error or theirs))
    assert not differing, (len(differing), differing[:40])
