"""One exchange of gRPC messages on an HTTP/2 stream: a unary call, or messages both ways."""

from __future__ import annotations

import asyncio
import math
import struct
from collections import deque
from typing import Final, Protocol

from storage.grpc.headers import Head

MAX_MESSAGE_BYTES: Final = 1024 * 1024 * 1024
"""Exceeds a page of the largest values in etcd by default (500 of 1.5 MiB)."""
STREAM_WINDOW: Final = 1024 * 1024
"""In bytes."""

OK: Final = 0
CANCELLED: Final = 1
DEADLINE_EXCEEDED: Final = 4
RESOURCE_EXHAUSTED: Final = 8
INTERNAL: Final = 13
UNAVAILABLE: Final = 14
STATUS_NAMES: Final = (
    "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS",
    "UNAUTHENTICATED",
)  # fmt: skip

PREFIX: Final = struct.Struct(">BI")
"""Before each message: compression flag and length."""
PREFIX_BYTES: Final = 5


class RpcError(Exception):
    """A gRPC call failed."""

    def __init__(self, status: int, message: str, *, processed: bool = True) -> None:
        """``message`` is the server's text, or ours. ``processed`` is False if the server certainly did nothing."""
        super().__init__(f"{status_name(status)}: {message}")
        self.status = status
        self.message = message
        self.processed = processed


def status_name(status: int) -> str:
    """Return the name of a gRPC status code."""
    return STATUS_NAMES[status] if status < len(STATUS_NAMES) else f"status {status}"


class Answer(Protocol):
    """The methods of a future that receives a call's answer."""

    def done(self) -> bool: ...  # noqa: D102 - asyncio says it

    def set_result(self, result: bytes, /) -> None: ...  # noqa: D102 - asyncio says it

    def set_exception(self, exception: BaseException, /) -> None: ...  # noqa: D102 - asyncio says it


class Exchange:
    """A gRPC call: one HTTP/2 stream, as the session sees it."""

    __slots__ = ("block", "credit", "deadline", "ends", "released", "send_window", "stream", "unsent")

    def __init__(self, block: bytes, unsent: bytes, *, ends: bool, deadline: float) -> None:
        self.stream = 0
        self.block = block
        self.unsent = unsent
        """Framed messages that flow control holds back."""
        self.ends = ends
        """True if our side ends after ``unsent``."""
        self.deadline = deadline
        self.send_window = 0
        self.credit = STREAM_WINDOW
        """Bytes that the server may send."""
        self.released = 0
        """Further bytes to grant to the server."""

    def receive(self, payload: bytes) -> int:
        """Take a part of the answer; return how many more bytes the server may send, or -1 after a failure."""
        raise NotImplementedError

    def finish(self, trailers: Head | None) -> None:
        """Take the answer's end; without trailers the call failed."""
        raise NotImplementedError

    def fail(self, error: RpcError) -> None:
        """End with an error unless already ended."""
        raise NotImplementedError

    @property
    def is_over(self) -> bool:
        """True if no caller waits."""
        raise NotImplementedError


def ending(trailers: Head | None) -> RpcError | None:
    """Return the RpcError that the trailers mean, or None for success. Without trailers or a gRPC status: UNAVAILABLE."""
    if trailers is None or trailers.grpc_status is None:
        status = "" if trailers is None or not trailers.http_status else f" (HTTP {trailers.http_status})"
        return RpcError(UNAVAILABLE, f"the response has no gRPC status{status}")
    return None if trailers.grpc_status == OK else RpcError(trailers.grpc_status, trailers.grpc_message)


class UnaryCall(Exchange):
    """A gRPC call with one message each way."""

    __slots__ = ("_answer", "_parts", "_size")

    def __init__(self, block: bytes, message: bytes, deadline: float, answer: Answer) -> None:
        """``block``: encoded headers; ``message`` is framed when it is sent; ``answer`` gets the response's message, or RpcError."""
        self.stream = 0
        self.block = block
        self.unsent = message
        self.ends = True
        self.deadline = deadline
        self.send_window = 0
        self.credit = STREAM_WINDOW
        self.released = 0
        self._answer = answer
        self._parts: list[bytes] = []
        self._size = 0

    def receive(self, payload: bytes) -> int:
        """Keep a part of the answer, and return its size; if the answer is too large, fail the call and return -1."""
        size = len(payload)
        self._parts.append(payload)
        self._size += size
        if self._size > MAX_MESSAGE_BYTES + PREFIX_BYTES:
            self.fail(RpcError(RESOURCE_EXHAUSTED, f"the response is larger than max {MAX_MESSAGE_BYTES} bytes"))
            return -1
        return size

    def finish(self, trailers: Head | None) -> None:
        """Give the caller the message, or the error in ``trailers``, or of an invalid message."""
        if (trailers is None or trailers.grpc_status != OK) and (error := ending(trailers)):
            self.fail(error)
            return
        whole = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        if len(whole) < PREFIX_BYTES or PREFIX.unpack_from(whole) != (0, len(whole) - PREFIX_BYTES):
            self.fail(RpcError(INTERNAL, "the response is not a single uncompressed message"))
        elif not self._answer.done():
            self._answer.set_result(whole[PREFIX_BYTES:])

    def fail(self, error: RpcError) -> None:
        """Give a waiting caller the error."""
        if not self._answer.done():
            self._answer.set_exception(error)

    @property
    def is_over(self) -> bool:
        """True if no caller waits for the answer."""
        return self._answer.done()


class Stream(Exchange):
    """A gRPC call with any number of messages each way."""

    __slots__ = ("_error", "_held", "_messages", "_parts", "_size", "_waiter", "_wanted")

    def __init__(self, block: bytes) -> None:
        super().__init__(block, b"", ends=False, deadline=math.inf)
        self._messages: deque[bytes] = deque()
        self._parts: list[bytes] = []  # of an incomplete message
        self._size = 0
        self._wanted = PREFIX_BYTES
        self._held = 0
        self._error: RpcError | None = None
        self._waiter: asyncio.Future[None] | None = None

    async def until_readable(self) -> None:
        """Wait for a message or the end."""
        while not self._messages and self._error is None:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def take(self) -> bytes:
        """Return the next message. Without one, raises RpcError: OK at the stream's proper end."""
        if self._messages:
            return self._messages.popleft()
        raise self._error or RpcError(INTERNAL, "no message was received")

    def free(self) -> int:
        """Return how many more bytes the server may send: as many as messages read since the last call had; 0 with unread messages."""
        if self._messages:
            return 0
        held, self._held = self._held, 0
        return held

    def receive(self, payload: bytes) -> int:
        """Take a part of the messages; return how many more bytes the server may send, or -1 after a failure."""
        self._parts.append(payload)
        self._size += len(payload)
        if self._size >= self._wanted:
            self._split(self._parts[0] if len(self._parts) == 1 else b"".join(self._parts))
        if self._error is not None:
            return -1
        self._held += len(payload)
        if not self._messages:
            return self.free()
        self._wake()
        return 0

    def _split(self, data: bytes) -> None:
        begin = 0
        self._wanted = PREFIX_BYTES
        while len(data) - begin >= PREFIX_BYTES:
            compressed, size = PREFIX.unpack_from(data, begin)
            if compressed or size > MAX_MESSAGE_BYTES:
                self.fail(RpcError(RESOURCE_EXHAUSTED, f"a message is compressed, or larger than max {MAX_MESSAGE_BYTES} bytes: {size}"))
                return
            end = begin + PREFIX_BYTES + size
            if len(data) < end:
                self._wanted = PREFIX_BYTES + size
                break
            self._messages.append(data[begin + PREFIX_BYTES : end])
            begin = end
        rest = data[begin:]
        self._parts = [rest] if rest else []
        self._size = len(rest)

    def finish(self, trailers: Head | None) -> None:
        """End the stream with the status in ``trailers``."""
        self.fail(ending(trailers) or RpcError(OK, "the server ended the stream"))

    def fail(self, error: RpcError) -> None:
        """End the stream with an error, which its reader gets after the messages."""
        if self._error is None:
            self._error = error
            self._wake()

    @property
    def is_over(self) -> bool:
        """True if the stream has ended."""
        return self._error is not None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def framed(message: bytes) -> bytes:
    """Return a message with gRPC's prefix, which has its length."""
    return PREFIX.pack(0, len(message)) + message
