from __future__ import annotations

import socket
from pathlib import Path

import pytest

from launcher.dhcp import lease
from launcher.dhcp.answers import Lease
from launcher.protocol import messages

TAP = messages.Interface("default", "52:54:00:c0:ff:ee", "tap0")


def machine(name: str) -> messages.Machine:
    return messages.Machine("default", name, "u-1", {}, "qemu", (TAP,))


def test_resolv_conf_is_handed_on_as_far_as_a_guest_can_use_it() -> None:
    text = f"""
# made by the kubelet
nameserver 127.0.0.53
nameserver 0.0.0.0
nameserver 10.96.0.10
nameserver fd00::10
nameserver what?
nameserver
search default.svc.cluster.local svc.cluster.local. --x .. {"a" * 64}.org {"b." * 130}org
options ndots:5
"""
    assert lease.resolver(text) == (("10.96.0.10",), ("default.svc.cluster.local", "svc.cluster.local"))


def test_not_more_than_a_pod_may_have_is_handed_on() -> None:
    servers, search = lease.resolver(
        "".join(f"nameserver 10.0.0.{each}\n" for each in range(9)) + "search " + " ".join(f"n{each}" for each in range(99))
    )
    assert (len(servers), len(search)) == (3, 32)


@pytest.mark.parametrize(("name", "hostname"), [("testvm", "testvm"), ("test.vm", ""), ("-", ""), ("a" * 64, "")])
def test_the_guest_learns_its_name_router_and_mtu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, hostname: str) -> None:
    monkeypatch.setattr(lease, "_mtu", lambda _: 1450)
    (tmp_path / "resolv.conf").write_text("nameserver 10.96.0.10\nsearch svc.local\n")
    with socket.socket() as any_socket:
        found = lease.of(machine(name), any_socket, tmp_path / "resolv.conf")
        assert lease.of(machine(name), any_socket, tmp_path / "none").dns == ()

    assert found == Lease(TAP.mac, "10.0.2.2", "10.0.2.1", "255.255.255.0", 1450, hostname, ("10.96.0.10",), ("svc.local",))
