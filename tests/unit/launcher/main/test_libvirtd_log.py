from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from launcher.main.programs import libvirtd_log

START = (
    b"2026-11-22 17:07:10.330+0000: 32432: error : udevGetDMIData:1936 : internal error: Failed to get udev device for syspath "
    b"'/sys/devices/virtual/dmi/id'",
    b'2026-11-22 17:07:10.330+0000: 32432: warning : virSecurityManagerNew:194 : Configured security driver "none" disables default policy '
    b"to create confined guests",
    b"2026-11-22 17:07:10.330+0000: 32432: error : virHostCPUGetCPUID:1422 : Unable to open /dev/kvm: Permission denied",
    b"2026-11-22 17:07:10.330+0000: 32432: error : dnsmasqCapsNewFromBinary:673 : Unable to find 'dnsmasq' binary in $PATH: No such file "
    b"or directory",
    b"2026-11-22 17:07:10.330+0000: 32432: info : libvirt version: 11.3.0",
    b"2026-11-22 17:07:10.330+0000: 32432: error : qemuAgentIO:513 : internal error: End of file from agent socket",
    b"",
)


@pytest.mark.parametrize("line", START)
def test_libvirtds_usual_start_and_end_lines_are_dropped(line: bytes) -> None:
    assert not libvirtd_log.worth_telling(line)


def test_everything_else_is() -> None:
    assert libvirtd_log.worth_telling(
        b"2026-11-22 17:07:10.330+0000: 32432: error : qemuProcessStart:1 : internal error: QEMU unexpectedly closed"
    )


def test_lines_come_in_pieces_and_have_a_length() -> None:
    lines = libvirtd_log.Lines()
    assert lines.feed(b"one\ntw") == [b"one"]
    assert lines.feed(b"o\nthree") == [b"two"]
    assert lines.feed(b"x" * libvirtd_log.MAX_LINE) == [b"three" + b"x" * libvirtd_log.MAX_LINE]


async def test_forwarded_lines_are_marked_cut_and_the_reader_removed(capfd: pytest.CaptureFixture[str]) -> None:
    loop, told = asyncio.get_running_loop(), ""
    with libvirtd_log.forwarding() as writer:
        mine = [int(each.name) for each in Path("/proc/self/fd").iterdir()]
        reader = next(each for each in mine if each != writer and _same_pipe(each, writer))
        os.write(writer, b"\n" + START[2] + b"\nQEMU ended\n" + b"x" * (2 * libvirtd_log.MAX_LINE) + b"\n")
        async with asyncio.timeout(30):
            while not told.endswith("x\n"):
                await asyncio.sleep(0.01)
                told += capfd.readouterr().err
    assert told == "libvirtd: QEMU ended\nlibvirtd: " + "x" * libvirtd_log.MAX_LINE + "\n"
    assert not loop.remove_reader(reader)  # the next file with that number belongs to another part


def _same_pipe(one: int, other: int) -> bool:
    try:
        return os.fstat(one).st_ino == os.fstat(other).st_ino
    except OSError:
        return False
