from __future__ import annotations

import tracemalloc

import orjson
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from apiserver.apis.meta.errors import BadRequest
from apiserver.endpoints.bodies import decode
from apiserver.endpoints.negotiation import JSON, YAML

TEXT = st.text(st.characters(codec="utf-8"), max_size=9)
NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(TEXT, VALUES, max_size=4))
def test_json_is_read_as_it_was_written(value: object) -> None:
    assert decode(orjson.dumps(value), JSON).value == value


@given(st.binary(max_size=64))
def test_any_bytes_decode_to_writable_value_or_bad_request(raw: bytes) -> None:
    for media_type in (JSON, YAML):
        try:
            body = decode(raw, media_type)
        except BadRequest:
            continue
        orjson.dumps(body.value)


def test_yaml_means_what_kubernetes_makes_of_it() -> None:
    raw = b"a: on\nb: 0o7\nc: 1.5\nd: 2001-01-01\ne: ~\n1: x\ntrue: y\nf: '5'\ng: 12\nh: |\n  t\n"
    expected = {"a": True, "b": 7, "c": 1.5, "d": "2001-01-01", "e": None, "1": "x", "true": True, "f": "5", "g": 12, "h": "t\n"}
    assert decode(raw, YAML).value == expected
    short = {"a": True, "b": False, "c": "y", "d": "y", "true": 1, "false": 2}
    assert decode(b"a: y\nb: N\nc: 'y'\nd: !!str y\non: 1\nn: 2\n", YAML).value == short


def test_yaml_aliases_are_written_out_within_limits() -> None:
    assert decode(b"a: &x {b: 1}\nc: *x\n", YAML).value == {"a": {"b": 1}, "c": {"b": 1}}
    bomb = "a: &a [1,1]\n" + "".join(f"{chr(x + 1)}: &{chr(x + 1)} [*{chr(x)},*{chr(x)}]\n" for x in range(97, 121))
    for raw in (bomb, "a: &a [*a]", "a: &a {<<: *a}", "[" * 1000 + "]" * 1000, "a: .nan", "? {}\n: 1", "a: *nothing", "a: 1\n---\nb: 2\n"):
        with pytest.raises(BadRequest):
            decode(raw.encode(), YAML)


@pytest.mark.parametrize("piece", [b"[", b"{a: ", b"- ", b"? "])
def test_deeply_nested_document_is_refused_at_once(piece: bytes) -> None:
    for media_type in (JSON, YAML):
        with pytest.raises(BadRequest):
            decode(piece * (3_000_000 // len(piece)), media_type)


def test_duplicate_keys_are_noticed() -> None:
    assert decode(b'{"a":1,"b":{"c":1,"c":2},"a":3}', JSON).duplicates == ("b.c", "a")
    assert decode(b'{"a":1,"a":1}\n', JSON).duplicates == ("a",)
    assert decode(b'{"a":1,"b":2}\n', JSON).duplicates == decode(b'{ "a": 1, "b": 2 }', JSON).duplicates == ()
    assert decode(b"a: 1\na: 2\n", YAML).duplicates == ("a",)
    assert decode(b"a:\n- b: {c: 1, c: 2}\n", YAML).duplicates == ("a[0].b.c",)
    assert decode(b'{"a":1,"a":3}', JSON, notice_duplicates=False).duplicates == ()


def test_a_long_key_is_not_written_out_for_each_value_below_it() -> None:
    """3 MB of values with a key of 1.5 MB would take 100 GB."""
    values = ",".join(f'"{number}":[{number}]' for number in range(1000))
    raw = f'{{"{"k" * 100_000}":{{{values}, "a": 1, "a": 2}}}}'.encode()
    tracemalloc.start()
    try:
        body = decode(raw, JSON)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
    assert body.duplicates == ("k" * 256 + ".a",)


def test_reported_duplicates_are_limited() -> None:
    raw = b"{" + b",".join(b'"%d":1,"%d":2' % (number, number) for number in range(300)) + b"}"
    assert len(decode(raw, JSON).duplicates) == len(decode(raw.replace(b":", b": "), YAML).duplicates) == 100


def test_yaml_merges_maps() -> None:
    raw = b"x: &x {a: 1, b: 1}\ny: &y {b: 2, c: 2}\nz: {<<: [*x, *y], a: 0}\n"
    assert decode(raw, YAML).value["z"] == {"a": 0, "b": 1, "c": 2}
    with pytest.raises(BadRequest, match="merge key"):
        decode(b"a: {<<: 5}", YAML)


def test_yaml_numbers_are_as_go_writes_them_in_json() -> None:
    assert orjson.dumps(decode(b"a: 5.0\nb: 1e3\nc: 1:30\nd: 1.0e+21\n", YAML).value) == b'{"a":5,"b":1000,"c":"1:30","d":1e+21}'


def test_an_empty_document_may_follow() -> None:
    assert decode(b"a: 1\n---\n", YAML).value == decode(b"a: 1\n---\n---\n...\n", YAML).value == {"a": 1}


def test_the_loader_is_the_fast_one() -> None:
    assert yaml.__with_libyaml__
