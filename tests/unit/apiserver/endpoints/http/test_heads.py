from __future__ import annotations

import h11
import httptools
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver.endpoints.http.heads import Head, Heads, ProtocolError

LINE = b"GET /apis?x=1 HTTP/1.1\r\n"
HOST = b"Host: a"


def test_a_head_is_its_line_and_its_fields() -> None:
    head = Heads().read(LINE + b"Host: a\r\nAccept: x\r\naccept: y\r\nX-A:\t v w \r\nX-Empty:")
    assert (head.method, head.target, head.old) == ("GET", "/apis?x=1", False)
    assert head.fields.headers.getall("ACCEPT") == ["x", "y"]
    assert (head.fields.headers["x-a"], head.fields.headers["x-empty"]) == ("v w", "")
    assert head.fields.accept == "x, y"


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"GET / HTTP/1.1", 400),
        (LINE + b"Host: a\r\nHost: b", 400),
        (LINE + b"Host:", 400),
        (LINE + HOST + b"\r\nContent-Length: 5\r\nTransfer-Encoding: chunked", 400),
        (LINE + HOST + b"\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked", 400),
        (LINE + HOST + b"\r\nTransfer-Encoding: chunked, identity", 501),
        (LINE + HOST + b"\r\nTransfer-Encoding: xchunked", 501),
        (LINE + HOST + b"\r\nTransfer-Encoding:\x0bchunked", 400),
        (LINE + HOST + b"\r\nTransfer-Encoding : chunked", 400),
        (LINE + HOST + b"\r\nContent-Length: 5\r\nContent-Length: 5", 400),
        (LINE + HOST + b"\r\nContent-Length: 5, 5", 400),
        (LINE + HOST + b"\r\nContent-Length: +5", 400),
        (LINE + HOST + b"\r\nContent-Length: 0x5", 400),
        (LINE + HOST + b"\r\nContent-Length: 1_0", 400),
        (LINE + HOST + b"\r\nContent-Length: \xc2\xb2", 400),
        (LINE + HOST + b"\r\nContent-Length: 9999999999999999999", 400),
        (LINE + HOST + b"\r\nContent-Length:", 400),
        (LINE + HOST + b"\r\nX: a\r\n b", 400),
        (LINE + HOST + b"\r\nX: a\r\n\tb: c", 400),
        (LINE + b" Host: a", 400),
        (LINE + HOST + b"\r\nX: a\nY: b", 400),
        (LINE + HOST + b"\r\nX: a\rY: b", 400),
        (LINE + HOST + b"\r\nX: a\x00b", 400),
        (LINE + HOST + b"\r\nX\x00: a", 400),
        (LINE + HOST + b"\r\n: a", 400),
        (LINE + HOST + b"\r\nX", 400),
        (LINE + HOST + b"\r\nX(: a", 400),
        (b"GET http://a/ HTTP/1.1\r\n" + HOST, 400),
        (b"GET a HTTP/1.1\r\n" + HOST, 400),
        (b"CONNECT a:443 HTTP/1.1\r\n" + HOST, 400),
        (b"OPTIONS * HTTP/1.1\r\n" + HOST, 400),
        (b"GET /a b HTTP/1.1\r\n" + HOST, 400),
        (b"GET /\x00 HTTP/1.1\r\n" + HOST, 400),
        (b"GET /\xff HTTP/1.1\r\n" + HOST, 400),
        (b"GET  / HTTP/1.1\r\n" + HOST, 400),
        (b"GET\t/ HTTP/1.1\r\n" + HOST, 400),
        (b"G@T / HTTP/1.1\r\n" + HOST, 400),
        (b"GET / HTTP/1.1 \r\n" + HOST, 400),
        (b"GET / http/1.1\r\n" + HOST, 400),
        (b"GET /\r\n" + HOST, 400),
        (b"GET / HTTP/2.0\r\n" + HOST, 505),
        (b"PRI * HTTP/2.0", 505),
        (b"GET / HTTP/1.0\r\nTransfer-Encoding: chunked", 400),
        (b"\r\n" + LINE + HOST, 400),
        (LINE + HOST + b"\r\nX: a" * 1001, 431),
    ],
)
def test_ambiguous_heads_are_refused(raw: bytes, code: int) -> None:
    with pytest.raises(ProtocolError) as refused:
        Heads().read(raw)
    assert refused.value.code == code


def test_body_framing_is_read_from_the_fields() -> None:
    heads = Heads()
    fields = heads.read(
        LINE + HOST + b"\r\nContent-Length: 007\r\nConnection: Upgrade, CLOSE\r\nUpgrade: WebSocket\r\nExpect: 100-Continue"
    ).fields
    assert (fields.content_length, fields.chunked, fields.close) == (7, False, True)
    assert (fields.upgrade, fields.expects_continue) == ("websocket", True)
    assert heads.read(LINE + HOST + b"\r\nTransfer-Encoding: Chunked").fields.chunked
    assert heads.read(LINE + HOST + b"\r\nUpgrade: websocket").fields.upgrade == ""
    assert heads.read(b"GET / HTTP/1.0").old


def test_fields_are_read_once_and_credentials_are_not_kept() -> None:
    heads = Heads(size=2)
    plain = LINE + HOST + b"\r\nAccept: x"
    assert heads.read(plain).fields is heads.read(b"PUT / HTTP/1.1\r\n" + HOST + b"\r\nAccept: x").fields
    for secret in (b"Authorization: Bearer t", b"cookie: a=b", b"Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.x"):
        assert heads.read(LINE + HOST + b"\r\n" + secret).fields is not heads.read(LINE + HOST + b"\r\n" + secret).fields
    for number in range(5):
        heads.read(LINE + HOST + b"\r\nX: %d" % number)
    assert len(heads._known) == 2


NAMES = st.sampled_from([b"Host", b"Content-Length", b"Transfer-Encoding", b"X", b"x-y", b"X ", b" X", b"X\x00", b""])
VALUES = st.sampled_from([b"a", b"5", b"5,5", b" 5 ", b"chunked", b"identity", b"a b", b"a\x01", b"\xc3\xa4", b"", b"a\nb: c", b"a\r b"])
FIELDS = st.lists(st.tuples(NAMES, st.sampled_from([b":", b": ", b" : ", b""]), VALUES), max_size=4)
LINES = st.tuples(
    st.sampled_from([b"GET", b"POST", b"get", b"G T", b""]),
    st.sampled_from([b"/", b"/a?b=c", b"/a b", b"*", b"http://a/", b"/%zz", b"/\x7f", b""]),
    st.sampled_from([b"HTTP/1.1", b"HTTP/1.0", b"HTTP/1.2", b"HTTP/2", b""]),
)


class Told:
    def __init__(self) -> None:
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value.strip()))


@settings(max_examples=100)
@given(LINES, FIELDS)
def test_accepted_heads_mean_the_same_to_two_other_parsers(line: tuple[bytes, ...], fields: list[tuple[bytes, bytes, bytes]]) -> None:
    raw = b"\r\n".join([b" ".join(line), *(b"".join(each) for each in fields)])
    try:
        head = Heads().read(raw)
    except ProtocolError:
        return
    ours = [(name.lower().encode(), value.encode()) for name, value in head.fields.headers.items()]
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(raw + b"\r\n\r\n")
    event = connection.next_event()
    assert isinstance(event, h11.Request)
    assert (event.method.decode(), event.target.decode()) == (head.method, head.target)
    assert [(name.lower(), value) for name, value in event.headers] == [
        (name, value.lower() if name == b"transfer-encoding" else value) for name, value in ours
    ]
    if head.method == "get":
        return
    told = Told()
    parser = httptools.HttpRequestParser(told)
    parser.feed_data(raw + b"\r\n\r\n")
    assert (told.url.decode(), told.headers) == (head.target, ours)


TRACES = tuple(f"00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333{each}-01" for each in range(2))
AGGREGATED = b"GET /x HTTP/1.1\r\nHost: h\r\nUser-Agent: u\r\n%b\r\nX-Remote-User: alice"


@pytest.mark.parametrize("place", ["middle", "end"])
def test_requests_with_other_audit_ids_share_their_fields(place: str) -> None:
    heads = Heads()

    def read(audit_id: bytes) -> Head:
        line = b"Audit-Id: " + audit_id
        return heads.read(AGGREGATED % line if place == "middle" else (AGGREGATED % b"Accept: a") + b"\r\n" + line)

    first, second, third = read(b"1f0c6d3e-0000"), read(b"2"), read(b"3")
    assert [each.own["Audit-Id"] for each in (first, second, third)] == ["1f0c6d3e-0000", "2", "3"]
    assert first.fields is second.fields is third.fields
    assert "Audit-Id" not in first.fields.headers
    assert dict(first.fields.headers)["X-Remote-User"] == "alice"
    assert (third.method, third.target, third.old) == ("GET", "/x", False)


@pytest.mark.parametrize("value", [b"", b"a" * 65, b"a b", "ä".encode(), b"a, b", b'"'])
def test_an_audit_id_of_another_form_is_a_field_like_any_other(value: bytes) -> None:
    head = Heads().read(AGGREGATED % (b"Audit-Id: " + value))
    assert (dict(head.own), head.fields.headers["Audit-Id"]) == ({}, value.decode())


def test_requests_of_different_objects_share_their_fields() -> None:
    heads = Heads()
    first, second = (heads.read(AGGREGATED % b"Audit-Id: a\r\nX-Forwarded-Uri: /apis/g/v1/things/%b" % name) for name in (b"one", b"two"))
    assert first.fields is second.fields
    assert "X-Forwarded-Uri" not in first.fields.headers


@pytest.mark.parametrize("name", ["traceparent", "Traceparent"])
def test_requests_of_different_traces_share_their_fields(name: str) -> None:
    heads = Heads()
    first, second = (heads.read(AGGREGATED % f"{name}: {value}".encode()) for value in (TRACES[0], TRACES[1]))
    assert [each.own for each in (first, second)] == [{"traceparent": TRACES[0]}, {"traceparent": TRACES[1]}]
    assert first.fields is second.fields
    assert "traceparent" not in first.fields.headers


@pytest.mark.parametrize("value", ["", "00 11", "0" * 65, "00-%"])
def test_a_traceparent_of_another_form_is_a_field_like_any_other(value: str) -> None:
    head = Heads().read(AGGREGATED % f"traceparent: {value}".encode())
    assert (dict(head.own), head.fields.headers["Traceparent"]) == ({}, value)


def test_the_first_of_two_audit_ids_counts() -> None:
    head = Heads().read(AGGREGATED % b"Audit-Id: one\r\nAudit-Id: two")
    assert (head.own["Audit-Id"], head.fields.headers.getall("Audit-Id")) == ("one", ["two"])


def test_bad_heads_are_refused_with_an_audit_id_too() -> None:
    for wrong in (
        b"Audit-Id: a\nX: b",
        b"Audit-Id: a\x00",
        b"X-Forwarded-Uri: /\n",
        b"traceparent: 00\n",
        b"traceparent: 00\x00",
        b"X-Forwarded-Uri: \x7f",
        b"Audit-Id: a\r\nContent-Length: 1\r\nContent-Length: 2",
    ):
        with pytest.raises(ProtocolError):
            Heads().read(AGGREGATED % wrong)


def test_heads_of_very_many_fields_are_not_remembered() -> None:
    heads = Heads()
    for count in (100, 99):
        raw = LINE + HOST + b"\r\nX:" * count
        fields = heads.read(raw).fields
        assert len(fields.headers) == count + 1
        assert (heads.read(raw).fields is fields) == (count == 99)


def test_a_reader_may_remember_nothing() -> None:
    heads = Heads(0)
    for raw in (LINE + HOST, b"GET / HTTP/1.0"):
        assert heads.read(raw).fields is not heads.read(raw).fields


def test_fields_have_a_number() -> None:
    heads = Heads(max_fields=3)
    assert len(heads.read(LINE + HOST + b"\r\nX:" * 2).fields.headers) == 3
    with pytest.raises(ProtocolError) as refused:
        heads.read(LINE + HOST + b"\r\nX:" * 3)
    assert refused.value.code == 431
