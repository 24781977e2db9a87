from __future__ import annotations

from pathlib import Path

import pytest

from handler.pods import qemu_capabilities
from launcher.protocol import codec, messages


def test_each_type_of_guests_has_its_own_cache(tmp_path: Path) -> None:
    (tmp_path / "qemu.xml").write_text("<emulated/>")
    (tmp_path / "kvm.xml").write_text("<accelerated/>")
    assert [qemu_capabilities.read(tmp_path, each) for each in ("qemu", "kvm")] == ["<emulated/>", "<accelerated/>"]


def test_without_a_cache_libvirt_probes(tmp_path: Path) -> None:
    assert qemu_capabilities.read(tmp_path / "missing", "qemu") == ""


@pytest.mark.parametrize("found", [b"x" * (qemu_capabilities.MAX_BYTES + 1), b"\xff"])
def test_a_file_that_no_request_can_carry_is_not_used(tmp_path: Path, found: bytes) -> None:
    (tmp_path / "qemu.xml").write_bytes(found)
    assert qemu_capabilities.read(tmp_path, "qemu") == ""


def test_the_largest_cache_fits_into_a_request(tmp_path: Path) -> None:
    (tmp_path / "qemu.xml").write_text('"' * qemu_capabilities.MAX_BYTES)
    machine = messages.Machine("default", "testvm", "u-1", {}, "qemu")
    request = messages.Sync(machine, capabilities=qemu_capabilities.read(tmp_path, "qemu"))
    assert len(codec.encode(messages.Call(1, request))) > qemu_capabilities.MAX_BYTES
