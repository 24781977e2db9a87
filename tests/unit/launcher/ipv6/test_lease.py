from __future__ import annotations

import socket
from pathlib import Path

import pytest

from launcher.dhcp import lease as resolving
from launcher.ipv6 import lease
from launcher.ipv6.settings import Settings
from launcher.protocol import leases, messages

MAC = "52:54:00:c0:ff:ee"
TOLD = leases.Lease6("fd10:0:2::2/128", "fe80::1", "02:00:00:00:00:01", ("fe80::1",))


def found(told: leases.Lease6, directory: Path, text: str = "") -> Settings:
    (directory / "resolv.conf").write_text(text)
    with socket.socket() as any_socket:
        return lease.of(MAC, told, any_socket, directory / "resolv.conf", lambda *_: 1450)


def test_the_guest_is_told_what_the_pod_knows(tmp_path: Path) -> None:
    text = "nameserver 10.96.0.10\nnameserver fd00::a\nnameserver 2001:db8::1\nnameserver 2606:4700::1111\nsearch svc.local\n"
    ours = bytes.fromhex("020000000001")
    assert found(TOLD, tmp_path, text) == Settings(
        bytes.fromhex("525400c0ffee"), "fd10:0:2::2", "fe80::1", ours, 1450, "fe80::1", ours, ("fe80::1",),
        dns=("fd00::a", "2001:db8::1", "2606:4700::1111"), search=("svc.local",),
    )  # fmt: skip


@pytest.mark.parametrize("address", ["::1", "::", "fe80::1", "fe80::1%eth0", "ff02::1", "::ffff:10.0.0.1", "10.0.0.1", "fd00::x"])
def test_servers_that_no_guest_reaches_are_left_out(tmp_path: Path, address: str) -> None:
    assert found(TOLD, tmp_path, f"nameserver {address}\n").dns == ()


def test_on_link_prefix_follows_from_the_address(tmp_path: Path) -> None:
    assert found(leases.Lease6("fd00:10:244::7/64", "fe80::2"), tmp_path).on_link == "fd00:10:244::/64"


def test_only_a_guest_on_the_pods_network_with_ipv6_is_served() -> None:
    def machine(*interfaces: messages.Interface) -> messages.Machine:
        return messages.Machine("default", "testvm", "u-1", {}, "qemu", interfaces)

    assert lease.given(machine(messages.Interface("a", MAC, "tap0"))) is None
    assert lease.given(machine(messages.Interface("a", MAC, "tapx", lease6=TOLD))) is None
    assert lease.given(machine(messages.Interface("a", MAC, "tap0", lease6=TOLD))) == (MAC, TOLD)
    assert resolving.with_dhcp(machine(messages.Interface("a", MAC, "tap0", lease6=TOLD, ipv4=False))) == ()
