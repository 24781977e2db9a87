from __future__ import annotations

import gc

import pytest

from apiserver.client.answers import MAX_HEAD_BYTES, Answer
from apiserver.client.transport import NotHTTP

LINE = b"HTTP/1.1 200 OK\r\n"
CHUNKED = LINE + b"Transfer-Encoding: chunked\r\n\r\n"
TWO = b"Content-Length: 2\r\n\r\nok"


def read(*said: bytes, has_body: bool = True) -> Answer:
    answer = Answer(has_body=has_body)
    for each in said:
        answer.take(memoryview(each))
    return answer


def test_a_head_is_its_line_and_its_fields() -> None:
    answer = read(b"HTTP/1.1 201 All good\r\nX-A:\t v w \r\nX-Empty:\r\nx-a: \xc3\xa4\x80\r\n" + TWO)
    assert answer.head is not None
    assert (answer.head.status, answer.head.reason) == (201, b"All good")
    assert answer.head.fields[:3] == [(b"x-a", b"v w"), (b"x-empty", b""), (b"x-a", b"\xc3\xa4\x80")]
    assert (b"".join(answer.parts), answer.is_whole, answer.is_last) == (b"ok", True, False)


@pytest.mark.parametrize(
    "said",
    [
        LINE + b"X: a\rY: b\r\n" + TWO,
        LINE + b"X: a\r\r\n" + TWO,
        LINE + b"X: a\nY: b\r\n" + TWO,
        LINE + b"X: a\r\n b\r\n" + TWO,
        LINE + b" X: a\r\n" + TWO,
        LINE + b"X : a\r\n" + TWO,
        LINE + b"X\r\n" + TWO,
        LINE + b": a\r\n" + TWO,
        LINE + b"X(: a\r\n" + TWO,
        LINE + b"X: a\x00b\r\n" + TWO,
        LINE + b"Content-Length: 2\r\n" + TWO,
        LINE + b"Content-Length: 3\r\n" + TWO,
        LINE + b"Content-Length: 2, 2\r\n\r\nok",
        LINE + b"Content-Length: +2\r\n\r\nok",
        LINE + b"Content-Length: 0x2\r\n\r\nok",
        LINE + b"Content-Length: 2 2\r\n\r\nok",
        LINE + b"Content-Length: -2\r\n\r\nok",
        LINE + b"Content-Length:\r\n\r\nok",
        LINE + b"Content-Length: 99999999999999999999\r\n\r\nok",
        LINE + b"Transfer-Encoding: chunked\r\n" + TWO,
        LINE + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        LINE + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        LINE + b"Transfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        LINE + b"Transfer-Encoding: gzip\r\n\r\nok",
        LINE + b"Transfer-Encoding: xchunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        LINE + b"Transfer-Encoding: \x0bchunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        b"HTTP/1.1  200 OK\r\n" + TWO,
        b"HTTP/1.1 20 OK\r\n" + TWO,
        b"HTTP/1.1 2000 OK\r\n" + TWO,
        b"HTTP/1.1 000 OK\r\n" + TWO,
        b"HTTP/1.1 099 OK\r\n" + TWO,
        b"HTTP/1.9 200 OK\r\n" + TWO,
        b"HTTP/2.0 200 OK\r\n" + TWO,
        b"http/1.1 200 OK\r\n" + TWO,
        b"RTSP/1.0 200 OK\r\n" + TWO,
        b"\r\n" + LINE + TWO,
        b"HTTP/1.1 100 Continue\r\n\r\n\r\n" + LINE + TWO,
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        CHUNKED + b"-2\r\nok\r\n0\r\n\r\n",
        CHUNKED + b"2\r\nokXX0\r\n\r\n",
        CHUNKED + b"2\nok\n0\n\n",
        CHUNKED + b"fffffffffffffffff\r\nok",
    ],
)
@pytest.mark.parametrize("cut", [False, True], ids=["whole", "byte by byte"])
def test_malformed_responses_are_refused(said: bytes, *, cut: bool) -> None:
    with pytest.raises(NotHTTP):
        read(*(bytes((each,)) for each in said)) if cut else read(said)


def test_non_http_is_refused_before_its_head_ends() -> None:
    for said in (b"\x15\x03\x01\x00\x02", b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/2"):
        with pytest.raises(NotHTTP, match=r"not HTTP|invalid HTTP"):
            read(said)


@pytest.mark.parametrize("size", [64 << 10, MAX_HEAD_BYTES - 100])
def test_a_head_has_a_longest_length(size: int) -> None:
    assert read(LINE + b"X: " + b"x" * size + b"\r\n" + TWO).is_whole
    with pytest.raises(NotHTTP, match="longer than"):
        read(LINE, *[b"X: " + b"x" * 100 + b"\r\n"] * (MAX_HEAD_BYTES // 100))


def test_data_before_garbage_is_kept() -> None:
    answer = Answer(has_body=True)
    with pytest.raises(NotHTTP):
        answer.take(memoryview(CHUNKED + b"2\r\nok\r\nzz\r\n"))
    assert (answer.head is not None, answer.parts) == (True, [b"ok"])


@pytest.mark.parametrize(
    ("said", "is_last"),
    [
        (LINE + TWO, False),
        (LINE + TWO + b"\r\n", True),
        (LINE + TWO + b"x", True),
        (LINE + TWO + b"HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\nno", True),
        (LINE + b"Connection: close\r\n" + TWO, True),
        (LINE + b"Connection: close\r\n" + TWO + b"x", True),
        (b"HTTP/1.0 200 OK\r\n" + TWO, True),
        (CHUNKED + b"2\r\nok\r\n0\r\n\r\n", False),
        (CHUNKED + b"2\r\nok\r\n0\r\nContent-Type: x\r\n\r\n", False),
        (CHUNKED + b"2\r\nok\r\n0\r\n\r\n\r\n", True),
        (CHUNKED + b"2;x=y\r\nok\r\n0\r\n\r\n" + LINE, True),
        (b"HTTP/1.1 103 Early Hints\r\nContent-Length: 5\r\nConnection: close\r\n\r\n" + LINE + TWO, False),
    ],
)
def test_bytes_after_an_answer_are_noticed(said: bytes, *, is_last: bool) -> None:
    answer = read(said)
    assert (b"".join(answer.parts), answer.is_whole, answer.is_last) == (b"ok", True, is_last)
    assert answer.head is not None
    assert answer.head.status == 200
    assert not read(said[:-1]).is_whole or is_last


@pytest.mark.parametrize("fields", [b"Content-Length: 2\r\n", b"Transfer-Encoding: chunked\r\n", b"Content-Length: 0\r\n"])
def test_an_answer_to_head_has_no_body(fields: bytes) -> None:
    assert read(LINE + fields + b"\r\n", has_body=False).is_whole
    assert not read(LINE + fields + b"\r\n", has_body=False).is_last
    followed = read(LINE + fields + b"\r\nok", has_body=False)
    assert (followed.parts, followed.is_last) == ([], True)


def test_a_body_without_a_length_ends_with_the_connection() -> None:
    answer = read(LINE + b"\r\n", b"o", b"k")
    assert not answer.is_whole
    assert answer.end()
    assert (answer.parts, answer.is_whole, answer.is_last) == ([b"o", b"k"], True, True)
    for said in (b"", b"HTTP/1.1 200 O", LINE + b"Content-Length: 3\r\n\r\nok", CHUNKED + b"2\r\nok\r\n"):
        assert not read(said).end()


@pytest.mark.parametrize("said", [LINE + TWO, CHUNKED + b"0\r\n\r\n", b"HTTP/1.1 204 No Content\r\n\r\n", LINE + b"\r\nok"])
def test_an_answer_leaves_nothing_to_the_garbage_collector(said: bytes) -> None:
    def living() -> list[Answer]:
        return [each for each in gc.get_objects() if type(each) is Answer]

    gc.collect()
    gc.disable()
    others = living()  # other tests leave connections open
    try:
        assert read(said).end()
        assert not [each for each in living() if not any(each is other for other in others)]
    finally:
        gc.enable()
