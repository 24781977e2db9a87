from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver.endpoints.http.heads import MAX_HEAD_BYTES, Heads, ProtocolError
from apiserver.endpoints.http.reading import Reader

GET = b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n"
CHUNKED = b"POST /b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"


def whole(method: str, body: bytes) -> bytes:
    return b"%b /c HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%b" % (method.encode(), len(body), body)


def in_chunks(pieces: list[bytes]) -> bytes:
    chunks = b"".join(b"%X;ext=1\r\n%b\r\n" % (len(each), each) for each in pieces if each)
    return CHUNKED + chunks + b"000\r\nTrailer: x\r\n\r\n"


def read_all(cuts: list[bytes]) -> list[tuple[str, str, bytes] | int]:
    reader = Reader(Heads())
    found: list[tuple[str, str, bytes] | int] = []
    head, body = None, b""
    for cut in cuts:
        reader.receive(cut)
        try:
            while True:
                if head is None:
                    head, body = reader.head(), b""
                    if head is None:
                        break
                body += reader.body()
                if not reader.complete:
                    break
                found.append((head.method, head.target, body))
                head = None
        except ProtocolError as error:
            return [*found, error.code]
    return found


def cut(raw: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(raw), *(place % (len(raw) + 1) for place in places)})
    return [raw[start:end] for start, end in pairwise(edges)]


BODIES = st.binary(max_size=40)
REQUESTS = st.one_of(
    st.just(GET),
    BODIES.map(lambda body: whole("PUT", body)),
    st.lists(BODIES, max_size=4).map(in_chunks),
)
MALFORMED = st.sampled_from(
    [
        b"GET / HTTP/1.1\nHost: h\n\n", b"\r\n\r\n", CHUNKED + b"5\nhello\r\n", CHUNKED + b"5\r\nhelloX\r\n", CHUNKED + b"-5\r\n",
        CHUNKED + b"0x5\r\n", CHUNKED + b"\r\n", CHUNKED + b"5 5\r\n", CHUNKED + b"123456789\r\n", CHUNKED + b"5;\x00\r\n",
        CHUNKED + b"5;" + b"x" * 300 + b"\r\nhello\r\n", CHUNKED + b"0\r\n" + b"x: y\r\n" * 2000,
        CHUNKED + b"0\r\nx\n\r\n", CHUNKED + b"G\r\n",
        CHUNKED + b"1\r\na\rb",
    ]
)  # fmt: skip


@settings(max_examples=100)
@given(st.lists(REQUESTS, max_size=5), st.one_of(st.just(b""), MALFORMED), st.lists(st.integers(0, 10_000), max_size=30))
def test_any_cut_of_the_bytes_gives_the_same_requests(requests: list[bytes], end: bytes, places: list[int]) -> None:
    raw = b"".join(requests) + end
    at_once = read_all([raw])
    assert read_all(cut(raw, places)) == at_once
    assert read_all([raw[index : index + 1] for index in range(len(raw))]) == at_once
    assert len([each for each in at_once if not isinstance(each, int)]) == len(requests)
    assert isinstance(at_once[-1] if at_once else 0, int) == (bool(end) or not at_once)


@settings(max_examples=100)
@given(st.binary(max_size=200), st.lists(st.integers(0, 1000), max_size=10))
def test_any_bytes_are_requests_or_refused(raw: bytes, places: list[int]) -> None:
    assert read_all(cut(raw, places)) == read_all([raw] if raw else [])


def test_a_head_has_a_limit_at_one_byte() -> None:
    room = MAX_HEAD_BYTES - len(b"GET / HTTP/1.1\r\nHost: h\r\nX: ")
    for extra, expected in ((0, [("GET", "/", b"")]), (1, [431])):
        raw = b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"x" * (room + extra) + b"\r\n\r\n"
        assert read_all([raw]) == expected
        assert read_all([raw[:-1], raw[-1:]]) == expected
    assert read_all([b"x" * (MAX_HEAD_BYTES + 4)]) == [431]


def test_after_a_refusal_nothing_is_kept() -> None:
    reader = Reader(Heads())
    reader.receive(b"nonsense\r\n\r\n" + b"x" * 100)
    with pytest.raises(ProtocolError):
        reader.head()
    assert (reader.broken, len(reader)) == (True, 0)
