from __future__ import annotations

import pytest

from launcher.main import libvirtd_log

START = (
    b"2026-11-22 17:07:10.330+0000: 32432: error : udevGetDMIData:1936 : internal error: Failed to get udev device for syspath "
    b"'/sys/devices/virtual/dmi/id'",
    b'2026-11-22 17:07:10.330+0000: 32432: warning : virSecurityManagerNew:194 : Configured security driver "none" disables default policy '
    b"to create confined guests",
    b"2026-11-22 17:07:10.330+0000: 32432: error : virHostCPUGetCPUID:1422 : Unable to open /dev/kvm: Permission denied",
    b"2026-11-22 17:07:10.330+0000: 32432: info : libvirt version: 11.3.0",
    b"",
)


@pytest.mark.parametrize("line", START)
def test_what_libvirtd_says_at_each_start_is_not_told(line: bytes) -> None:
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
