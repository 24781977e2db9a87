from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from apiserver.apis.virt.places import network
from handler.network import namespaces
from handler.network.binding import Unsupported
from tests.host.handler import pods
from tests.host.handler.pods import Pod
from tests.host.handler.test_guest_packets import VM
from tests.own_time import within

pytestmark = pytest.mark.host


@pytest.fixture
def pod() -> Iterator[Pod]:
    with pods.a_pod() as made:
        yield made


async def test_preparing_twice_leaves_one_bridge_and_one_set_of_rules(pod: Pod) -> None:
    first = await pods.NETWORKS.prepare(VM, "", pod.launcher)
    second = await pods.NETWORKS.prepare(VM, "", pod.launcher)

    assert first == second
    assert first[0].addresses == (pods.POD, pods.POD6)
    links = {link["ifname"]: link for link in await namespaces.links(pod.launcher.network)}
    assert links[network.BRIDGE]["address"] == network.BRIDGE_MAC
    assert links[network.TAP]["address"] == network.TAP_MAC
    assert links[network.TAP]["master"] == network.BRIDGE
    rules = (await namespaces.run(pod.launcher.network, ("nft", "list", "ruleset"))).decode()
    for once in (
        'iifname "eth0" dnat to 10.0.2.2',
        "127.0.0.1 meta l4proto tcp dnat to 10.0.2.2",
        'iifname "eth0" ip6 daddr != { fe80::/10, ff00::/8 } dnat to fd10:0:2::2',
        "ip6 daddr ::1 meta l4proto tcp dnat to fd10:0:2::2",
    ):
        assert rules.count(once) == 1, rules
    for twice in ("masquerade", "hook ingress", "hook input"):
        assert rules.count(twice) == 2, rules
    files = ("/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding", "/proc/sys/net/ipv6/conf/eth0/accept_ra")
    assert (await namespaces.run(pod.launcher.network, ("cat", *files))).split() == [b"1", b"1", b"2"]


async def test_programs_without_input_get_no_pipe(pod: Pod) -> None:
    """uvloop would raise RuntimeError, and fail the VM's whole pass."""
    assert await namespaces.run(pod.launcher.network, ("readlink", "/proc/self/fd/0")) == b"/dev/null\n"
    with pytest.raises(namespaces.CommandFailed, match=r"^sh -c set -e failed \(3\): "):
        await namespaces.run(pod.launcher.network, ("sh", "-c", "set -e\nexit 3"))


async def test_a_machine_with_the_gateways_address_gets_no_network(pod: Pod) -> None:
    taken = {"name": "default", "type": "masquerade", "mac": "02-00-00-00-00-01"}
    with pytest.raises(Unsupported, match="is reserved for the guest's gateway"):
        await pods.NETWORKS.prepare({**VM, "spec": {"domain": {"devices": {"interfaces": [taken]}}}}, "", pod.launcher)
    assert {link["ifname"] for link in await namespaces.links(pod.launcher.network)} == {"lo", "eth0"}


async def test_end_of_the_launcher_process_is_noticed(pod: Pod) -> None:
    os.kill(pod.launcher.pid, 9)
    await within(5, pod.launcher.ended())

    assert pod.launcher.has_ended
