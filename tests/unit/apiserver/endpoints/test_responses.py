"""Headers and bodies of answers."""

from __future__ import annotations

from apiserver.apis.meta.errors import Conflict, Details, TooManyRequests
from apiserver.endpoints.responses import dump, etag_of, status_of, warning, warnings


def test_wrn_01_a_warning_is_quoted_and_cannot_break_the_header() -> None:
    assert warning('unknown field "a\\b"') == '299 - "unknown field \\"a\\\\b\\""'
    assert warning("a\r\nSet-Cookie: x") == '299 - "a??Set-Cookie: x"'
    assert warning("größer") == '299 - "größer"'


def test_wrn_01_warnings_are_whole_while_they_are_few_and_cut_when_they_are_many() -> None:
    assert warnings(["x" * 4000, "", "y" * 96]) == [warning("x" * 4000), warning("y" * 96)]
    many = warnings([*("x" * 1000 + str(each) for each in range(100)), "y"])
    assert set(many) == {warning("x" * 256)}
    assert len(many) == 4096 // 256


def test_retry_after_is_a_header_exactly_if_the_status_says_so() -> None:
    assert status_of(TooManyRequests("later", Details(retry_after_seconds=3))).headers["Retry-After"] == "3"
    assert "Retry-After" not in status_of(Conflict("no")).headers


def test_bodies_end_with_a_newline_and_tags_are_of_the_body() -> None:
    assert dump({"a": 1}) == b'{"a":1}\n'
    assert dump({"a": 1}, pretty=True).count(b"\n") == 3
    assert len(etag_of(b"x")) == 128
    assert etag_of(b"x") == etag_of(b"x").upper()
