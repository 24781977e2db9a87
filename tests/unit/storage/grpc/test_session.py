"""The connection without its socket: with h2 as server, in any split, and with hostile servers."""

import itertools
import math
import random
from concurrent.futures import Future
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.settings
import hpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.grpc import frames, headers
from storage.grpc.calls import (
    DEADLINE_EXCEEDED,
    INTERNAL,
    OK,
    RESOURCE_EXHAUSTED,
    STREAM_WINDOW,
    UNAVAILABLE,
    RpcError,
    Stream,
    UnaryCall,
    framed,
)
from storage.grpc.frames import ProtocolError
from storage.grpc.session import CONNECTION_WINDOW, MAX_CONTROL_FRAMES, Session

BLOCK = headers.request("/etcdserverpb.KV/Txn", scheme="https", authority="etcd:2379", metadata=(("hasleader", "true"),))
HEADERS = [(":status", "200"), ("content-type", "application/grpc")]
FINE = [("grpc-status", "0"), ("grpc-message", "")]


class Server:
    def __init__(self) -> None:
        self.connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
        self.connection.initiate_connection()
        self.session = Session()
        self.requests: dict[int, list[Any]] = {}
        self.bodies: dict[int, bytes] = {}
        self.ended: list[int] = []
        self.resets: list[int] = []
        self.acknowledges = True
        self.exchange()

    def exchange(self) -> None:
        while True:
            ours, theirs = self.session.take(), self.connection.data_to_send()
            if not ours and not theirs:
                return
            if theirs:
                self.session.receive(theirs)
            if ours:
                self._events(self.connection.receive_data(ours))

    def _events(self, events: list[Any]) -> None:
        for event in events:
            if isinstance(event, h2.events.RequestReceived):
                self.requests[event.stream_id] = event.headers
                self.bodies[event.stream_id] = b""
            elif isinstance(event, h2.events.DataReceived):
                self.bodies[event.stream_id] += event.data
                if self.acknowledges:
                    self.connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, h2.events.StreamEnded):
                self.ended.append(event.stream_id)
            elif isinstance(event, h2.events.StreamReset):
                self.resets.append(event.stream_id)

    def call(self, message: bytes = b"request", *, deadline: float = math.inf) -> "tuple[UnaryCall, Future[bytes]]":
        future: Future[bytes] = Future()
        call = UnaryCall(BLOCK, message, deadline, future)
        self.session.open(call)
        return call, future

    def answer(self, stream: int, message: bytes, trailers: list[tuple[str, str]] = FINE) -> None:
        self.connection.send_headers(stream, HEADERS)
        rest = framed(message)
        while rest:
            self.exchange()
            size = min(len(rest), self.connection.local_flow_control_window(stream), 16_384)
            assert size > 0, "the client does not let the server send"
            self.connection.send_data(stream, rest[:size])
            rest = rest[size:]
        self.connection.send_headers(stream, trailers, end_stream=True)
        self.exchange()


def error_of(future: "Future[bytes]") -> RpcError:
    error = future.exception(timeout=0)
    assert isinstance(error, RpcError)
    return error


def raw(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return frames.frame(kind, flags, stream, payload)


def block(*fields: tuple[str, str]) -> bytes:
    encoder = hpack.Encoder()
    return bytes(encoder.encode([hpack.NeverIndexedHeaderTuple(*each) for each in fields], huffman=False))


def begun() -> Session:
    session = Session()
    session.receive(raw(frames.SETTINGS, 0, 0))
    session.take()
    return session


def opened(session: Session) -> "tuple[UnaryCall, Future[bytes]]":
    future: Future[bytes] = Future()
    call = UnaryCall(BLOCK, b"request", math.inf, future)
    session.open(call)
    session.take()
    return call, future


def flood(session: Session, frame: bytes, times: int) -> None:
    for _ in range(times):
        session.receive(frame)


def test_call_sends_one_message_with_grpc_headers() -> None:
    server = Server()
    call, future = server.call(b"request")
    server.exchange()
    assert dict(server.requests[1]) == {
        ":method": "POST",
        ":scheme": "https",
        ":path": "/etcdserverpb.KV/Txn",
        ":authority": "etcd:2379",
        "te": "trailers",
        "content-type": "application/grpc",
        "user-agent": "kubevirt-python",
        "hasleader": "true",
    }
    assert server.bodies[1] == framed(b"request")
    assert server.ended == [1]
    server.answer(call.stream, b"answer")
    assert future.result(timeout=0) == b"answer"
    assert server.session.is_idle


def test_many_calls_are_answered_in_any_order() -> None:
    server = Server()
    calls = [server.call(str(number).encode()) for number in range(50)]
    server.exchange()
    random.Random(1).shuffle(calls)
    for call, future in calls:
        server.answer(call.stream, server.bodies[call.stream][5:] + b"!")
        assert future.result(timeout=0) == server.bodies[call.stream][5:] + b"!"


def test_messages_larger_than_every_window_go_both_ways() -> None:
    server = Server()
    large = random.Random(2).randbytes(3_000_000)
    call, future = server.call(large)
    other, second = server.call(b"small")
    server.exchange()
    assert server.bodies[call.stream] == framed(large)
    assert server.bodies[other.stream] == framed(b"small")
    server.answer(call.stream, large)
    server.answer(other.stream, b"ok")
    assert (future.result(timeout=0), second.result(timeout=0)) == (large, b"ok")


def test_blocked_data_are_sent_when_the_server_reads() -> None:
    server = Server()
    server.acknowledges = False
    calls = [server.call(bytes(40_000))[0] for _ in range(3)]
    server.exchange()
    assert sum(map(len, server.bodies.values())) == frames.DEFAULT_WINDOW
    for call in calls:
        server.connection.acknowledge_received_data(len(server.bodies[call.stream]), call.stream)
    server.acknowledges = True
    server.exchange()
    assert [len(server.bodies[call.stream]) for call in calls] == [40_005] * 3


def test_later_window_sizes_apply_to_open_streams() -> None:
    server = Server()
    server.acknowledges = False
    server.connection.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 10})
    server.exchange()
    call, _ = server.call(bytes(100))
    server.exchange()
    assert len(server.bodies[call.stream]) == 10
    server.connection.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 1000})
    server.exchange()
    assert len(server.bodies[call.stream]) == 105


def test_calls_beyond_the_servers_limit_wait_their_turn() -> None:
    server = Server()
    server.connection.update_settings({h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: 2})
    server.exchange()
    calls = [server.call() for _ in range(5)]
    server.exchange()
    assert len(server.requests) == 2
    server.session.cancel(calls[4][0])
    for call, future in calls[:4]:
        server.answer(call.stream, b"a")
        assert future.result(timeout=0) == b"a"
    assert len(server.requests) == 4


def test_trailers_only_answer_has_a_percent_decoded_message() -> None:
    server = Server()
    call, future = server.call()
    server.exchange()
    server.connection.send_headers(call.stream, [*HEADERS, ("grpc-status", "11"), ("grpc-message", "caf%C3%A9 %zz")], end_stream=True)
    server.exchange()
    assert (error_of(future).status, error_of(future).message) == (11, "café %zz")
    assert error_of(future).processed


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ([(":status", "502")], UNAVAILABLE),
        ([(":status", "200"), ("content-type", "text/html")], UNAVAILABLE),
        ([(":status", "200"), ("content-type", "application/grpc")], UNAVAILABLE),
        ([(":status", "200"), ("content-type", "application/grpc"), ("grpc-status", "many")], 2),
    ],
)
def test_an_answer_that_is_not_grpc_is_an_error_and_no_result(fields: list[tuple[str, str]], status: int) -> None:
    server = Server()
    call, future = server.call()
    server.exchange()
    server.connection.send_headers(call.stream, fields, end_stream=True)
    server.exchange()
    assert error_of(future).status == status


@pytest.mark.parametrize("body", [b"", b"\0\0", b"\1\0\0\0\1x", b"\0\0\0\0\2x", framed(b"a") + framed(b"b")])
def test_an_answer_that_is_not_one_plain_message_is_an_error(body: bytes) -> None:
    server = Server()
    call, future = server.call()
    server.exchange()
    server.connection.send_headers(call.stream, HEADERS)
    server.connection.send_data(call.stream, body)
    server.connection.send_headers(call.stream, FINE, end_stream=True)
    server.exchange()
    assert error_of(future).status == INTERNAL


def test_an_answer_that_ends_with_data_has_no_status() -> None:
    session = begun()
    call, future = opened(session)
    session.receive(raw(frames.HEADERS, frames.END_HEADERS, call.stream, block(*HEADERS)))
    session.receive(raw(frames.DATA, frames.END_STREAM, call.stream, framed(b"a")))
    assert error_of(future).status == UNAVAILABLE


def test_informational_padded_and_continued_headers_are_read() -> None:
    session = begun()
    call, future = opened(session)
    fields = block(*HEADERS)
    padded = b"\x03" + b"\0\0\0\0\x10" + fields[:4] + b"\0\0\0"
    session.receive(raw(frames.HEADERS, frames.END_HEADERS, call.stream, block((":status", "103"))))
    session.receive(raw(frames.HEADERS, frames.PADDED | frames.PRIORITY, call.stream, padded))
    session.receive(raw(frames.CONTINUATION, 0, call.stream, fields[4:9]))
    session.receive(raw(frames.CONTINUATION, frames.END_HEADERS, call.stream, fields[9:]))
    session.receive(raw(frames.DATA, frames.PADDED, call.stream, b"\x02" + framed(b"answer") + b"\0\0"))
    session.receive(raw(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, call.stream, block(*FINE)))
    assert future.result(timeout=0) == b"answer"


def test_frames_of_later_versions_and_priorities_are_passed_over() -> None:
    session = begun()
    session.receive(raw(2, 0, 1, b"\0\0\0\0\x10") + raw(0xBE, 0xFF, 0, b"new") + raw(frames.SETTINGS, 0, 0, b"\x00\x99\0\0\0\1"))
    assert session.take() == raw(frames.SETTINGS, frames.ACK, 0)


def test_pings_are_answered_and_ours_heard() -> None:
    server = Server()
    server.connection.ping(b"12345678")
    server.exchange()
    server.session.ping()
    ours = server.session.take()
    assert [type(event) for event in server.connection.receive_data(ours)] == [h2.events.PingReceived]
    server.exchange()


def test_leaving_server_finishes_calls_and_names_unstarted_ones() -> None:
    server = Server()
    first, answered = server.call()
    second, refused = server.call()
    server.exchange()
    server.connection.close_connection(additional_data=b"too_many_pings", last_stream_id=first.stream)
    goaway = server.connection.data_to_send()
    server.session.receive(goaway)
    assert not error_of(refused).processed
    assert "too_many_pings" in str(error_of(refused))
    assert server.session.is_leaving
    _, late = server.call()
    assert not error_of(late).processed
    session = server.session
    session.receive(raw(frames.HEADERS, frames.END_HEADERS, first.stream, block(*HEADERS)))
    session.receive(raw(frames.DATA, 0, first.stream, framed(b"last")))
    session.receive(raw(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, first.stream, block(*FINE)))
    assert answered.result(timeout=0) == b"last"
    assert session.is_idle
    assert second.is_over


@pytest.mark.parametrize(
    ("code", "processed"), [(frames.REFUSED_STREAM, False), (frames.ERROR_NAMES.index("INTERNAL_ERROR"), True), (77, True)]
)
def test_reset_call_is_unavailable_and_repeatable_if_refused(code: int, processed: bool) -> None:
    session = begun()
    call, future = opened(session)
    session.receive(frames.reset(call.stream, code))
    assert (error_of(future).status, error_of(future).processed) == (UNAVAILABLE, processed)


def test_cancelled_call_is_reset_and_its_late_data_ignored() -> None:
    server = Server()
    call, future = server.call()
    server.exchange()
    server.session.cancel(call)
    ours = server.session.take()
    session = server.session
    session.receive(raw(frames.HEADERS, frames.END_HEADERS, call.stream, block(*HEADERS)))
    session.receive(raw(frames.DATA, 0, call.stream, framed(b"late")) + frames.window_update(call.stream, 5))
    session.receive(raw(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, call.stream, block(*FINE)))
    server._events(server.connection.receive_data(ours))
    assert server.resets == [call.stream]
    assert not future.done()


def test_calls_expire_those_that_never_left_safely() -> None:
    session = begun()
    session.receive(raw(frames.SETTINGS, 0, 0, b"\0\3\0\0\0\1"))
    futures: list[Future[bytes]] = [Future() for _ in range(3)]
    for future, deadline in zip(futures, (5.0, 6.0, 7.0), strict=True):
        session.open(UnaryCall(BLOCK, b"", deadline, future))
    assert session.next_deadline() == 5.0
    assert not session.expire(4.9)
    assert session.expire(6.0)
    assert [error_of(each).status for each in futures[:2]] == [DEADLINE_EXCEEDED] * 2
    assert error_of(futures[0]).processed
    assert not futures[2].done()
    assert session.next_deadline() == 7.0


def test_lost_connection_fails_all_calls_and_marks_unsent_ones() -> None:
    session = begun()
    session.receive(raw(frames.SETTINGS, 0, 0, b"\0\3\0\0\0\1"))
    _, sent = opened(session)
    _, waiting = opened(session)
    session.lost("gone")
    assert (error_of(sent).processed, error_of(waiting).processed) == (True, False)
    assert session.is_idle


def test_streams_carry_messages_both_ways_with_backpressure() -> None:
    server = Server()
    stream = Stream(BLOCK)
    server.session.open(stream)
    server.session.send(stream, b"create")
    server.exchange()
    assert server.bodies[stream.stream] == framed(b"create")
    assert not server.ended
    server.connection.send_headers(stream.stream, HEADERS)
    message, sent = bytes(100_000), 0
    pending = b""
    while True:
        server.exchange()
        window = server.connection.local_flow_control_window(stream.stream)
        if not window:
            break
        if not pending:
            pending, sent = framed(message), sent + 1
        part = pending[: min(window, 16_384)]
        server.connection.send_data(stream.stream, part)
        pending = pending[len(part) :]
    assert sent == math.ceil(STREAM_WINDOW / 100_005)
    for _ in range(sent - 1):
        assert stream.take() == message
        server.session.release(stream)
    server.exchange()
    assert server.connection.local_flow_control_window(stream.stream) > 0
    for part in (pending[:16_384], pending[16_384:32_768], pending[32_768:49_152], pending[49_152:], framed(b"last")):
        server.connection.send_data(stream.stream, part)
    server.connection.send_headers(stream.stream, FINE, end_stream=True)
    server.exchange()
    assert [stream.take(), stream.take()] == [message, b"last"]
    with pytest.raises(RpcError) as caught:
        stream.take()
    assert caught.value.status == OK


def test_message_larger_than_the_window_passes_a_stream() -> None:
    server = Server()
    stream = Stream(BLOCK)
    server.session.open(stream)
    server.exchange()
    large = random.Random(3).randbytes(3 * STREAM_WINDOW)
    server.answer(stream.stream, large)
    assert stream.take() == large


def test_oversized_message_is_refused_on_a_stream() -> None:
    session = begun()
    stream = Stream(BLOCK)
    session.open(stream)
    session.receive(raw(frames.HEADERS, frames.END_HEADERS, stream.stream, block(*HEADERS)))
    session.receive(raw(frames.DATA, 0, stream.stream, b"\0\xff\xff\xff\xff"))
    with pytest.raises(RpcError) as caught:
        stream.take()
    assert caught.value.status == RESOURCE_EXHAUSTED


def recorded() -> bytes:
    parts = [raw(frames.SETTINGS, 0, 0, b"\0\4\0\1\0\0"), raw(frames.PING, 0, 0, b"12345678"), frames.window_update(0, 1000)]
    fine = raw(frames.HEADERS, frames.END_HEADERS, 1, block(*HEADERS))
    parts += [fine, raw(frames.DATA, 0, 1, framed(b"one")[:3]), raw(frames.DATA, frames.PADDED, 1, b"\x01" + framed(b"one")[3:] + b"\0")]
    parts += [raw(frames.HEADERS, 0, 3, block(*HEADERS)[:3]), raw(frames.CONTINUATION, frames.END_HEADERS, 3, block(*HEADERS)[3:])]
    large = framed(bytes(range(256)) * 100)
    parts += [raw(frames.DATA, 0, 3, large[:16_384]), raw(frames.DATA, 0, 3, large[16_384:])]
    parts += [raw(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, stream, block(*FINE)) for stream in (1, 3)]
    error = block(*HEADERS, ("grpc-status", "14"), ("grpc-message", "no%20leader"))
    parts += [raw(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, 5, error)]
    return b"".join(parts)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, len(recorded())), max_size=60))
def test_however_the_bytes_are_split_the_answers_are_the_same(cuts: list[int]) -> None:
    session = Session()
    calls = [opened(session)[1] for _ in range(3)]
    data = recorded()
    edges = [0, *sorted(cuts), len(data)]
    for begin, end in itertools.pairwise(edges):
        session.receive(data[begin:end])
    assert calls[0].result(timeout=0) == b"one"
    assert calls[1].result(timeout=0) == bytes(range(256)) * 100
    assert (error_of(calls[2]).status, error_of(calls[2]).message) == (14, "no leader")
    assert session.take() == raw(frames.SETTINGS, frames.ACK, 0) + raw(frames.PING, frames.ACK, 0, b"12345678")


def test_session_accepts_single_octets() -> None:
    session = Session()
    calls = [opened(session)[1] for _ in range(3)]
    for octet in recorded():
        session.receive(bytes([octet]))
    assert calls[0].result(timeout=0) == b"one"


FRAMES = st.builds(
    raw,
    st.integers(0, 12),
    st.integers(0, 255),
    st.sampled_from([0, 1, 2, 3, 5, 99, 2**31 - 1]),
    st.one_of(st.binary(max_size=40), st.sampled_from([block(*HEADERS), block(*FINE), framed(b"x"), b"\0\0\0\1", bytes(8), bytes(6)])),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(FRAMES, max_size=30))
def test_any_frames_keep_the_session_or_end_it_with_its_calls(sent: list[bytes]) -> None:
    session = begun()
    calls = [opened(session) for _ in range(3)]
    stream = Stream(BLOCK)
    session.open(stream)
    broken = None
    try:
        for each in sent:
            session.receive(each)
    except ProtocolError as error:
        broken = error
    assert broken is None or session.take().endswith(frames.goaway(broken.code))
    session.lost("gone")
    assert session.is_idle
    assert stream.is_over
    assert all(future.done() for _, future in calls)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_any_octets_raise_only_a_protocol_error(data: bytes) -> None:
    session = Session()
    try:
        session.receive(data)
    except ProtocolError:
        return
    assert len(data) < frames.HEADER_BYTES or not session.is_ready or data[3] == frames.SETTINGS


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (frames.HEADER.pack((frames.FRAME_BYTES + 1) << 8, 0, 1), frames.FRAME_SIZE_ERROR),
        (raw(frames.DATA, 0, 0, b"x"), frames.PROTOCOL_ERROR),
        (raw(frames.DATA, 0, 99, b"x"), frames.PROTOCOL_ERROR),
        (raw(frames.DATA, 0, 2, b"x"), frames.PROTOCOL_ERROR),
        (raw(frames.DATA, frames.PADDED, 1, b"\x09x"), frames.PROTOCOL_ERROR),
        (raw(frames.DATA, frames.PADDED, 1), frames.PROTOCOL_ERROR),
        (raw(frames.HEADERS, frames.END_HEADERS | frames.PRIORITY, 1, b"\0"), frames.FRAME_SIZE_ERROR),
        (raw(frames.HEADERS, frames.END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff"), frames.COMPRESSION_ERROR),
        (raw(frames.HEADERS, frames.END_HEADERS, 1, b"\x3f\xe1\x1f"), frames.COMPRESSION_ERROR),  # a table, although we allow none
        (raw(frames.HEADERS, 0, 1, b"") + raw(frames.PING, 0, 0, bytes(8)), frames.PROTOCOL_ERROR),
        (raw(frames.HEADERS, 0, 1, b"") + raw(frames.CONTINUATION, 0, 3, b""), frames.PROTOCOL_ERROR),
        (raw(frames.CONTINUATION, frames.END_HEADERS, 1, b""), frames.PROTOCOL_ERROR),
        (raw(frames.PUSH_PROMISE, 0, 1, bytes(4)), frames.PROTOCOL_ERROR),
        (raw(frames.RST_STREAM, 0, 1, bytes(3)), frames.FRAME_SIZE_ERROR),
        (raw(frames.RST_STREAM, 0, 0, bytes(4)), frames.PROTOCOL_ERROR),
        (raw(frames.SETTINGS, 0, 1), frames.PROTOCOL_ERROR),
        (raw(frames.SETTINGS, 0, 0, bytes(5)), frames.FRAME_SIZE_ERROR),
        (raw(frames.SETTINGS, frames.ACK, 0, bytes(6)), frames.FRAME_SIZE_ERROR),
        (raw(frames.SETTINGS, 0, 0, b"\0\4\xff\xff\xff\xff"), frames.FLOW_CONTROL_ERROR),
        (raw(frames.SETTINGS, 0, 0, b"\0\5\0\0\0\1"), frames.PROTOCOL_ERROR),
        (raw(frames.PING, 0, 0, bytes(7)), frames.FRAME_SIZE_ERROR),
        (raw(frames.GOAWAY, 0, 0, bytes(7)), frames.FRAME_SIZE_ERROR),
        (frames.window_update(0, 0), frames.PROTOCOL_ERROR),
        (frames.window_update(1, 0), frames.PROTOCOL_ERROR),
        (frames.window_update(0, frames.MAX_WINDOW), frames.FLOW_CONTROL_ERROR),
        (frames.window_update(1, frames.MAX_WINDOW) * 2, frames.FLOW_CONTROL_ERROR),
    ],
)
def test_protocol_violation_ends_the_connection_with_its_code(sent: bytes, code: int) -> None:
    session = begun()
    opened(session)
    with pytest.raises(ProtocolError) as caught:
        session.receive(sent)
    assert caught.value.code == code
    assert session.take().endswith(frames.goaway(code))


def test_a_server_that_does_not_begin_with_its_settings_is_none() -> None:
    for sent in (b"HTTP/1.1 400 Bad Request\r\n\r\n" * 2, raw(frames.PING, 0, 0, bytes(8))):
        with pytest.raises(ProtocolError):
            Session().receive(sent)


def test_headers_without_end_are_ended() -> None:
    for part, most in ((b"", 100), (bytes(16_384), 5)):
        session = begun()
        opened(session)
        session.receive(raw(frames.HEADERS, 0, 1, part))
        with pytest.raises(ProtocolError) as caught:
            flood(session, raw(frames.CONTINUATION, 0, 1, part), most)
        assert caught.value.code == frames.ENHANCE_YOUR_CALM


@pytest.mark.parametrize("frame", [raw(frames.PING, 0, 0, bytes(8)), raw(frames.SETTINGS, 0, 0)])
def test_answers_that_the_server_does_not_read_do_not_pile_up(frame: bytes) -> None:
    session = begun()
    with pytest.raises(ProtocolError) as caught:
        flood(session, frame, MAX_CONTROL_FRAMES + 1)
    assert caught.value.code == frames.ENHANCE_YOUR_CALM
    assert len(session.take()) < 64 * MAX_CONTROL_FRAMES


def test_data_beyond_the_windows_ends_the_connection() -> None:
    part = bytes(frames.FRAME_BYTES)
    session = begun()
    stream = Stream(BLOCK)
    session.open(stream)
    session.receive(raw(frames.DATA, 0, stream.stream, framed(b"unread")))
    with pytest.raises(ProtocolError) as caught:
        flood(session, raw(frames.DATA, 0, stream.stream, part), STREAM_WINDOW // len(part) + 1)
    assert caught.value.code == frames.FLOW_CONTROL_ERROR


def test_data_for_calls_given_up_is_counted_and_given_back() -> None:
    session = begun()
    call, _ = opened(session)
    session.cancel(call)
    session.take()
    for _ in range(CONNECTION_WINDOW // frames.FRAME_BYTES):
        session.receive(raw(frames.DATA, 0, call.stream, bytes(frames.FRAME_BYTES)))
    assert frames.window_update(0, 1)[:9] in session.take()


def test_error_headers_do_not_displace_cached_ones() -> None:
    heads = headers.Heads()
    for number in range(1000):
        heads.decode(block(("grpc-status", "14"), ("grpc-message", str(number))))
    assert heads.decode(block(*FINE)).grpc_status == 0
    assert len(heads.known) == 1
