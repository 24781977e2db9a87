"""The relay process: copies data between a TLS connection and a pod's unix socket.

To stay small, it imports only the standard library and ``certs.contexts``. For each connection virt-handler sends, over the
``SOCK_SEQPACKET`` socket at descriptor 0, an empty JSON object and two descriptors: the TCP socket, and a channel of the same kind:

====================  ============================================================================================================
to the process        ``{"server_name", "protocol", "certificate", "key", "authorities"}`` (PEM): do the handshake, as client if
                      ``server_name`` is given, which offers the protocol (ALPN) if there is one
from the process      ``{"peer"}``: the other side's verified certificate, as from ``ssl.SSLSocket.getpeercert``
to the process        ``{"read": bytes}``: read a line of at most this length
from the process      ``{"line"}``: including its end, in Latin-1
to the process        ``{"lead": line}`` with the descriptor of the pod's socket: send this line, then copy both ways; or
                      ``{"answer": line}``: send this line and disconnect
from the process      ``{"ended"}``: why the connection ended
====================  ============================================================================================================

When a channel closes, its connection ends after delivering received data, within ``FLUSH_SECONDS``; ``{"abort": true}`` ends it at once.
When descriptor 0 closes or virt-handler ends, the process ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, NoReturn, TypeVar

from certs import contexts

CHUNK_BYTES: Final = 256 << 10
"""Size of one read in the guest's direction. A connection holds at most four of these, and :data:`MAX_UNSENT_BYTES`."""
BACK_BYTES: Final = 32 << 10
"""Size of one read in the other direction."""
MAX_UNSENT_BYTES: Final = 2 * CHUNK_BYTES
"""Encrypted but unsent bytes. A peer that requests new keys endlessly and reads nothing would fill the memory with OpenSSL's answers."""
FLUSH_SECONDS: Final = 5.0
MAX_MESSAGE_BYTES: Final = 64 << 10
STACK_BYTES: Final = 192 << 10
MAX_DATA_BYTES: Final = 96 << 20
"""Writable memory of this process: enough for all unread connections of a migration. Exceeding it ends a connection."""
MAX_FILE_BYTES: Final = 1 << 20
NICE: Final = 5
"""Below the priority of virt-handler's event loop."""
_RECORD_BYTES: Final = 16 << 10
_SLACK_BYTES: Final = 2 * _RECORD_BYTES
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_DUMPABLE: Final = 4
_PR_SET_NO_NEW_PRIVS: Final = 38

_Result = TypeVar("_Result")


class Ended(Exception):
    """A connection ended; the message says why."""


class _Aborted(Ended):
    """The connection ended without delivering the rest."""


class Channel:
    """A connection's channel to virt-handler."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link

    def fileno(self) -> int:
        """Return the descriptor, readable if there is a message, or at the end."""
        return self._link.fileno()

    def receive(self) -> tuple[dict[str, Any], list[int]]:
        """Return the next message and its descriptors. Raises Ended if virt-handler ended the channel or the connection."""
        try:
            data, descriptors, flags, _ = socket.recv_fds(self._link, MAX_MESSAGE_BYTES, 1)
        except OSError as error:
            raise Ended(str(error)) from error
        if not data or flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
            raise Ended("virt-handler closed it")
        message: dict[str, Any] = json.loads(data)
        if "abort" in message:
            raise _Aborted("virt-handler aborted it")
        return message, descriptors

    def send(self, message: dict[str, Any]) -> None:
        """Send a message to virt-handler, if it is still there."""
        with contextlib.suppress(OSError):
            self._link.send(json.dumps(message).encode(), socket.MSG_DONTWAIT)


class Tls:
    """One side of TLS over a non-blocking socket, which receives and sends many records at a time, unlike OpenSSL."""

    def __init__(self, link: socket.socket, context: ssl.SSLContext, server_name: str | None) -> None:
        self.link = link
        self.is_source = server_name is not None
        """The guest migrates from here."""
        self._received, self._encrypted = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._received, self._encrypted, server_side=server_name is None, server_hostname=server_name)
        self._unsent = memoryview(b"")
        self._chunk = memoryview(bytearray(_RECORD_BYTES))

    def widen(self) -> None:
        """Receive larger chunks from now on, for the guest's data."""
        self._chunk = memoryview(bytearray(BACK_BYTES if self.is_source else CHUNK_BYTES))

    @property
    def is_sent(self) -> bool:
        """True if all written data has been sent."""
        return not self._unsent and not self._encrypted.pending

    def peer(self) -> object:
        """Return the other side's certificate."""
        return self._object.getpeercert()

    def flush(self) -> None:
        """Send as much encrypted data as the socket takes. Raises OSError."""
        while not self.is_sent:
            if not self._unsent:
                self._unsent = memoryview(self._encrypted.read())
            try:
                sent = self.link.send(self._unsent)
            except BlockingIOError:
                return
            self._unsent = self._unsent[sent:]

    def fill(self) -> None:
        """Receive encrypted data, or its end.

        Raises OSError, or Ended if the other side reads nothing, but causes more and more answers.
        """
        if self._encrypted.pending > MAX_UNSENT_BYTES:
            raise Ended("the other side does not read answers")
        try:
            count = self.link.recv_into(self._chunk)
        except BlockingIOError:
            return
        if count:
            self._received.write(self._chunk[:count])
        else:
            self._received.write_eof()

    def write(self, data: memoryview | bytes) -> None:
        """Encrypt data, which :meth:`flush` sends. Raises OSError."""
        self._object.write(data)

    def read(self, into: memoryview) -> int:
        """Decrypt received data into a buffer, and return its size; 0: call :meth:`fill` first. Raises Ended or OSError."""
        count = 0
        try:
            while count < len(into):
                more = int(self._object.read(len(into) - count, into[count:]))
                if not more:
                    raise Ended("the other side closed it")
                count += more
        except ssl.SSLWantReadError:
            return count
        except (Ended, ssl.SSLEOFError, ssl.SSLZeroReturnError):
            if count:
                return count
            raise Ended("the other side closed it") from None
        return count

    def handshake(self) -> bool:
        """Continue the handshake with what :meth:`fill` received; return whether it is complete. Raises OSError.

        :meth:`flush` must follow.
        """
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def end(self) -> None:
        """Write the end of the TLS stream, which :meth:`flush` sends. Raises OSError."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self._object.unwrap()


def main(user: int) -> None:
    """Relay each connection that virt-handler gives, until virt-handler is gone. ``user``: uid to run as; 0: the present one."""
    confine(user)
    threading.stack_size(STACK_BYTES)
    control = socket.socket(fileno=0)
    while True:
        try:
            data, descriptors, _, _ = socket.recv_fds(control, MAX_MESSAGE_BYTES, 2)
        except OSError:
            return
        if not data:
            return
        links = [socket.socket(fileno=each) for each in descriptors]
        try:
            if len(links) == 2:
                threading.Thread(target=carry, args=tuple(links), daemon=True).start()
                links = []
        except (RuntimeError, MemoryError) as error:  # no more threads
            sys.stderr.write(f"relays: refused a connection: {error}\n")
        finally:
            for link in links:
                link.close()


def confine(user: int) -> None:
    """Drop root (unless ``user`` is 0), limit memory, and forbid new privileges and core files, which would contain the node's key.

    The process then ends with its parent. Raises OSError.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # virt-handler decides when to end
    "".encode("idna")  # loads the code for server names while Python's files are readable
    os.nice(NICE)
    for limit, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_DATA, MAX_DATA_BYTES),
        (resource.RLIMIT_FSIZE, MAX_FILE_BYTES),
    ):
        resource.setrlimit(limit, (value, value))
    if user:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    libc = ctypes.CDLL(None, use_errno=True)
    # after the change of user, which resets these; dumpable makes /proc/self/fd accessible, where OpenSSL reads the key
    for option, value in ((_PR_SET_PDEATHSIG, signal.SIGKILL), (_PR_SET_NO_NEW_PRIVS, 1), (_PR_SET_DUMPABLE, 1)):
        if libc.prctl(option, int(value), 0, 0, 0):
            raise OSError(ctypes.get_errno(), f"prctl {option}")


def carry(link: socket.socket, told: socket.socket) -> None:
    """Relay the connection ``link`` to its end; virt-handler's messages come through the socket ``told``."""
    channel = Channel(told)
    with link, told:
        try:
            link.settimeout(0)
            _serve(link, channel)
        except (Ended, OSError, ValueError, MemoryError) as error:  # ssl.SSLError is an OSError
            channel.send({"ended": str(error) or type(error).__name__})


def _serve(link: socket.socket, channel: Channel) -> None:
    order, _ = channel.receive()
    name = order["server_name"]
    tls = Tls(link, context(order), name)
    order.clear()
    _until(tls, channel, lambda: tls.handshake() or None)
    channel.send({"peer": tls.peer()})
    try:
        _converse(tls, channel)
    except Ended as ended:
        if not isinstance(ended, _Aborted):
            _finish(tls)
        raise


def _converse(tls: Tls, channel: Channel) -> None:
    while True:
        said, descriptors = channel.receive()
        if "read" in said:
            channel.send({"line": _line(tls, channel, int(said["read"])).decode("latin-1")})
        elif "answer" in said:
            tls.write(said["answer"].encode("latin-1"))
            raise Ended("answered")
        elif "lead" in said and descriptors:
            with socket.socket(fileno=descriptors[0]) as pod:
                pod.settimeout(0)
                if said["lead"]:
                    tls.write(said["lead"].encode("latin-1"))
                _copy(tls, pod, channel)
        else:
            raise Ended("virt-handler sent an unknown message")


def context(order: dict[str, Any]) -> ssl.SSLContext:
    """Return the TLS context for one handshake, by virt-handler's first message. Raises OSError for an unusable certificate."""
    is_client = order["server_name"] is not None
    made = contexts.client() if is_client else contexts.server()
    made.verify_mode = ssl.CERT_REQUIRED
    if is_client and order.get("protocol"):
        made.set_alpn_protocols([order["protocol"]])
    if not is_client:
        made.set_alpn_protocols(["http/1.1"])
        made.options |= ssl.OP_NO_TICKET
        made.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
        made.num_tickets = 0
    with _file(order["certificate"]) as certificate, _file(order["key"]) as key:
        made.load_cert_chain(certificate, key)
    if order["authorities"]:
        made.load_verify_locations(cadata=order["authorities"])
    return made


@contextlib.contextmanager
def _file(text: str) -> Iterator[str]:
    """Yield a path, valid only in this process, of a file in memory with this text."""
    descriptor = os.memfd_create("relay", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _until(tls: Tls, channel: Channel, step: Callable[[], _Result | None]) -> _Result:
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    while True:
        try:
            result = step()
        finally:
            tls.flush()  # also sends the alert about a failed handshake
        if result is not None and tls.is_sent:
            return result
        poll.register(tls.link, select.POLLIN if tls.is_sent else select.POLLOUT)
        for descriptor, _ in poll.poll():
            if descriptor == channel.fileno():
                channel.receive()
                raise Ended("virt-handler sent an unexpected message")
        if tls.is_sent:
            tls.fill()


def _line(tls: Tls, channel: Channel, most: int) -> bytes:
    line, one = bytearray(), memoryview(bytearray(1))

    def step() -> bytes | None:
        while len(line) < most and not line.endswith(b"\n"):
            if not tls.read(one):
                return None
            line.extend(one)
        return bytes(line)

    return _until(tls, channel, step)


def _finish(tls: Tls, pod: socket.socket | None = None, undelivered: memoryview | None = None) -> None:
    """Send the end of the TLS stream, and ``undelivered`` data to the pod, within ``FLUSH_SECONDS``. Errors are ignored."""
    rest = memoryview(b"") if undelivered is None else undelivered
    deadline = time.monotonic() + FLUSH_SECONDS
    with contextlib.suppress(OSError):
        tls.end()
    poll, open_ones = select.poll(), set[int]()
    for each in (tls.link, *((pod,) if pod is not None else ())):
        poll.register(each, select.POLLOUT)
        open_ones.add(each.fileno())
    while open_ones and (left := deadline - time.monotonic()) > 0:
        for descriptor, _ in poll.poll(left * 1000):
            try:
                if descriptor == tls.link.fileno():
                    tls.flush()
                    is_done = tls.is_sent
                else:
                    assert pod is not None  # noqa: S101 - its descriptor is registered
                    rest = rest[pod.send(rest) :] if rest else rest
                    is_done = not rest
            except BlockingIOError:
                continue
            except OSError:
                is_done = True
            if is_done:
                poll.unregister(descriptor)
                open_ones.discard(descriptor)


def _copy(tls: Tls, pod: socket.socket, channel: Channel) -> NoReturn:
    copying = _Copying(tls, pod, channel)
    try:
        copying.run()
    except _Aborted:
        raise
    except (Ended, OSError):
        _finish(tls, pod, copying.undelivered)
        raise


class _Copying:
    """Copies both ways. Reads from a side only after the other took the last data, so slow readers need no memory."""

    def __init__(self, tls: Tls, pod: socket.socket, channel: Channel) -> None:
        self._tls, self._pod, self._channel = tls, pod, channel
        up, down = (CHUNK_BYTES, BACK_BYTES) if tls.is_source else (BACK_BYTES, CHUNK_BYTES)
        self._up = memoryview(bytearray(up))
        self._down = memoryview(bytearray(down + _SLACK_BYTES))
        self.undelivered = self._down[:0]
        """Not yet taken by the pod."""
        self._poll = select.poll()
        self._masks = {tls.link.fileno(): 0, pod.fileno(): 0}
        self._poll.register(channel, select.POLLIN)

    def run(self) -> NoReturn:
        """Copy both ways until a side ends; always raises Ended or OSError."""
        link, pod = self._masks
        self._tls.widen()
        self._tls.flush()
        self._deliver()  # data that came with the header
        while True:
            can_read, is_taken = self._tls.is_sent, not self.undelivered
            self._want(link, (select.POLLIN if is_taken else 0) | (0 if can_read else select.POLLOUT))
            self._want(pod, (select.POLLIN if can_read else 0) | (0 if is_taken else select.POLLOUT))
            for descriptor, _ in self._poll.poll():
                if descriptor == link:
                    self._tls.flush()
                    if is_taken:
                        self._tls.fill()
                        self._deliver()
                elif descriptor == pod:
                    if not is_taken:
                        self._deliver()
                    if can_read:
                        self._take()
                else:
                    self._channel.receive()
                    raise Ended("virt-handler sent an unexpected message")

    def _want(self, descriptor: int, mask: int) -> None:
        """Poll for the events ``mask``; 0: not at all, because a side that has ended would be reported forever."""
        before = self._masks[descriptor]
        if mask != before:
            self._masks[descriptor] = mask
            if mask:
                self._poll.register(descriptor, mask)
            else:
                self._poll.unregister(descriptor)

    def _take(self) -> None:
        try:
            count = self._pod.recv_into(self._up)
        except BlockingIOError:
            return
        if not count:
            raise Ended("the pod closed it")
        self._tls.write(self._up[:count])
        self._tls.flush()

    def _deliver(self) -> None:
        while True:
            if not self.undelivered:
                self.undelivered = self._down[: self._tls.read(self._down)]
                if not self.undelivered:
                    return
            try:
                self.undelivered = self.undelivered[self._pod.send(self.undelivered) :]
            except BlockingIOError:
                return
