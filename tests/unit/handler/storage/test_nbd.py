"""An NBD server's answers about an export: https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md."""

from __future__ import annotations

import asyncio
import struct

import pytest

from handler.storage import nbd
from handler.storage.nbd import Export, NoExport

GREETING = b"NBDMAGICIHAVEOPT\x00\x03"


def reply(kind: int, data: bytes = b"", *, option: int = 7, magic: int = 0x3E889045565A9, length: int | None = None) -> bytes:
    return struct.pack(">QIII", magic, option, kind, len(data) if length is None else length) + data


def info(size: int, flags: int = 1, kind: int = 0) -> bytes:
    return reply(3, struct.pack(">HQH", kind, size, flags))


class Said:
    def __init__(self) -> None:
        self.bytes = b""

    def write(self, data: bytes) -> None:
        self.bytes += data

    async def drain(self) -> None:
        await asyncio.sleep(0)


async def ask(answer: bytes, name: str = "") -> tuple[Export, bytes]:
    reader, said = asyncio.StreamReader(), Said()
    reader.feed_data(answer)
    reader.feed_eof()
    return await nbd.ask(reader, said, name), said.bytes  # type: ignore[arg-type]  # it only writes


async def test_export_size_and_rights_are_read_and_connection_closed() -> None:
    found, said = await ask(GREETING + reply(3, b"\x00\x03\x00\x00\x02\x00") + info(4096, 3) + reply(1), "vms/a")
    assert found == Export(4096, read_only=True)
    option = b"IHAVEOPT" + struct.pack(">II", 7, 11) + struct.pack(">I", 5) + b"vms/a" + b"\0\0"
    assert said == struct.pack(">I", 1) + option + struct.pack(">IHHQQI", 0x25609513, 0, 2, 0, 0, 0)
    assert (await ask(GREETING + info(512) + reply(1)))[0] == Export(512, read_only=False)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"", "closed the connection"),
        (b"220 smtp.example ESMTP", "is not an NBD server"),
        (b"NBDMAGIC\x00\x00\x42\x02\x81\x86\x12\x53" + bytes(200), "not an NBD server"),
        (b"NBDMAGICIHAVEOPT\x00\x00", "fixed newstyle"),
        (GREETING, "closed the connection"),
        (GREETING + reply(1 << 31 | 6, b"no such export"), "it has no such export"),
        (GREETING + reply(1 << 31 | 1), "it does not support NBD_OPT_GO"),
        (GREETING + reply(1 << 31 | 99), "error 99"),
        (GREETING + reply(1), "sent no information about the export"),
        (GREETING + info(512, kind=9) + reply(1), "sent no information about the export"),
        (GREETING + reply(1, magic=7), "is not an NBD option reply"),
        (GREETING + reply(1, option=6), "is not an NBD option reply"),
        (GREETING + reply(3, length=1 << 31), "is not an NBD option reply"),
        (GREETING + info(512) * 40, ""),
    ],
    ids=lambda each: repr(each)[-40:],
)
async def test_invalid_nbd_answers_are_reported(answer: bytes, words: str) -> None:
    if words:
        with pytest.raises(NoExport, match=words):
            await ask(answer)
    else:
        assert (await ask(answer))[0].size == 512  # the client stops reading
