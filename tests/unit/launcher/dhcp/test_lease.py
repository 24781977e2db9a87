from __future__ import annotations

import socket
from pathlib import Path

import pytest

from apiserver.apis.virt.spec import attachments
from launcher.dhcp import lease
from launcher.dhcp.answers import Lease
from launcher.protocol import leases, messages

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


def test_a_file_without_end_is_not_read_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "resolv.conf").write_text("#" * (1 << 20) + "\nnameserver 10.96.0.10\n")
    assert 0 < len(lease.read(tmp_path / "resolv.conf")) < 1 << 16
    assert lease.read(tmp_path / "none") == ""


@pytest.mark.parametrize(
    ("name", "hostname"),
    [("testvm", "testvm"), ("web.prod", "web"), ("a" * 63 + ".b", "a" * 63), ("a" * 64 + ".b", ""), ("-", ""), ("a" * 64, "")],
)
def test_the_guest_learns_its_name_router_and_mtu(tmp_path: Path, name: str, hostname: str) -> None:
    def mtu(_: socket.socket, bridge: str) -> int:
        return {"k6t-eth0": 1450}[bridge]

    (tmp_path / "resolv.conf").write_text("nameserver 10.96.0.10\nsearch svc.local\n")
    with socket.socket() as any_socket:
        found = lease.of(machine(name), TAP, any_socket, tmp_path / "resolv.conf", mtu)
        assert lease.of(machine(name), TAP, any_socket, tmp_path / "none", mtu).dns == ()

    assert found == Lease(TAP.mac, "10.0.2.2", "10.0.2.1", "255.255.255.0", 1450, hostname, ("10.96.0.10",), ("svc.local",))


def routes(*given: str) -> tuple[leases.Route, ...]:
    return tuple(leases.Route(*each.split(">")) for each in given)


@pytest.mark.parametrize(
    ("address", "given", "netmask", "router", "told"),
    [
        ("10.244.1.7/24", ("0.0.0.0/0>10.244.1.1",), "255.255.255.0", "10.244.1.1", ()),
        ("10.244.1.7/24", (), "255.255.255.0", "", ()),
        (
            "10.244.1.7/32",
            ("0.0.0.0/0>169.254.1.1", "169.254.1.1/32>"),
            "255.255.255.255",
            "169.254.1.1",
            (("169.254.1.1/32", ""), ("0.0.0.0/0", "169.254.1.1")),
        ),
        ("10.244.1.7/24", ("10.96.0.0/12>10.244.1.9",), "255.255.255.0", "", (("10.96.0.0/12", "10.244.1.9"),)),
    ],
)
def test_a_guest_with_the_pods_address_is_told_the_pods_routes(
    address: str, given: tuple[str, ...], netmask: str, router: str, told: tuple[tuple[str, str], ...]
) -> None:
    found = lease.of_pod(TAP.mac, leases.Lease(address, "169.254.75.1", routes(*given)))
    assert (found.address, found.server, found.netmask) == ("10.244.1.7", "169.254.75.1", netmask)
    assert (found.router, found.routes) == (router, told)


def test_interface_lease_precedes_a_masqueraded_one(tmp_path: Path) -> None:
    card = messages.Interface("default", TAP.mac, "tap0", lease=leases.Lease("10.244.1.7/24", "169.254.75.1"))
    with socket.socket() as any_socket:
        machine_ = messages.Machine("default", "testvm", "u-1", {}, "qemu", (card,))
        found = lease.of(machine_, card, any_socket, tmp_path / "none", lambda *_: 1450)
    assert found == Lease(TAP.mac, "10.244.1.7", "169.254.75.1", "255.255.255.0", 1450, "testvm", router="")


def test_further_network_gets_only_its_ipam_lease(tmp_path: Path) -> None:
    (tmp_path / "resolv.conf").write_text("nameserver 10.96.0.10\nsearch svc.local\n")
    given = leases.Lease("192.168.7.9/24", "169.254.75.1", routes("172.16.0.0/12>192.168.7.1"))
    lan = messages.Interface("lan", "52:54:00:c0:ff:ef", attachments.tap("lan"), lease=given)
    silent = messages.Interface("wan", "52:54:00:c0:ff:f0", attachments.tap("wan"))
    both = messages.Machine("default", "testvm", "u-1", {}, "qemu", (TAP, silent, lan))
    assert lease.with_dhcp(both) == (TAP, lan)
    with socket.socket() as any_socket:
        found = lease.of(both, lan, any_socket, tmp_path / "resolv.conf", lambda _, bridge: {attachments.bridge("lan"): 1400}[bridge])
    told = (("172.16.0.0/12", "192.168.7.1"),)
    assert found == Lease(lan.mac, "192.168.7.9", "169.254.75.1", "255.255.255.0", 1400, router="", routes=told)
    assert "interface 'lan' has an address from its pod's IPAM" in lease.not_migratable(both)
    pods_own = messages.Interface("default", TAP.mac, "tap0", lease=given)
    for cards in ((TAP, silent), (pods_own,)):
        assert lease.not_migratable(messages.Machine("default", "testvm", "u-1", {}, "qemu", cards)) == ""
