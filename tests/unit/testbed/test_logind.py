from __future__ import annotations

import array
import os
import socket
import struct
from pathlib import Path

from tests.testbed import logind

SENDER, DESTINATION, FIELD_PATH, INTERFACE, MEMBER, SIGNATURE = 7, 6, 1, 2, 3, 8


def call(serial: int, member: str) -> bytes:
    fields: dict[int, str | int] = {FIELD_PATH: logind.PATH, SIGNATURE: "ss", MEMBER: member, INTERFACE: logind.INTERFACE}
    return logind.encode(logind.CALL, serial, fields, b"body")


def test_message_survives_encoding() -> None:
    message = call(7, "Inhibit")
    length = struct.unpack_from("<I", message, 12)[0]
    assert logind.decode(message[:16], message[16 : 16 + length]) == logind.Message(logind.CALL, 0, 7, "Inhibit")
    assert (len(message) - 4) % 8 == 0


def test_a_shutdown_is_delayed_until_the_lock_is_let_go(tmp_path: Path) -> None:
    with logind.running(tmp_path) as service, socket.socket(socket.AF_UNIX) as kubelet:
        kubelet.settimeout(20)
        kubelet.connect(str(tmp_path / logind.SOCKET))
        kubelet.sendall(b"\0AUTH EXTERNAL 30\r\n")
        assert kubelet.recv(100).startswith(b"OK ")
        kubelet.sendall(b"NEGOTIATE_UNIX_FD\r\n")
        assert kubelet.recv(100) == b"AGREE_UNIX_FD\r\n"
        kubelet.sendall(b"BEGIN\r\n" + call(1, "Inhibit"))
        _, ancillary, _, _ = kubelet.recvmsg(4096, socket.CMSG_SPACE(4))
        (lock,) = array.array("i", ancillary[0][2])
        assert service.inhibited.wait(20)
        service.prepare_for_shutdown(True)
        assert b"PrepareForShutdown" in kubelet.recv(4096)
        assert not service.released.is_set()
        os.close(lock)
        assert service.released.wait(20)
