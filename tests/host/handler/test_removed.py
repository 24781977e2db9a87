from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from apiserver.apis.virt.places import network
from apiserver.apis.virt.spec import attachments
from handler.network import namespaces, setup
from tests.host.handler import pods
from tests.host.handler.pods import Pod, Tap, run

pytestmark = pytest.mark.host

LAN: dict[str, Any] = {"name": "lan", "network": "lan", "mac": "52:54:00:00:00:77"}
VM: dict[str, Any] = {
    "metadata": {"name": "testvm", "namespace": "default", "uid": "3f0e"},
    "spec": {"domain": {"devices": {"interfaces": [{"name": "default"}, LAN]}}},
    "status": {},
}
FRAME = b"\xff" * 60
PARKED = attachments.link_of_network("lan", "default/lan")


@pytest.fixture
def pod() -> Iterator[Pod]:
    with pods.a_pod() as made:
        run("ip", "-n", made.caller, "link", "add", "lan", "type", "veth", "peer", "name", attachments.link("lan"), "netns", made.name)
        run("ip", "-n", made.name, "address", "add", "192.168.7.9/24", "dev", attachments.link("lan"))
        run("ip", "-n", made.caller, "link", "set", "lan", "up")
        yield made


async def links(pod: Pod) -> dict[str, dict[str, Any]]:
    return {each["ifname"]: each for each in await namespaces.links(pod.launcher.network)}


@pytest.mark.parametrize(("card", "tap"), [("default", network.TAP), ("lan", attachments.tap("lan"))])
async def test_tap_and_filters_go_although_a_process_has_the_tap_open(pod: Pod, card: str, tap: str) -> None:
    networks = pods.NETWORKS
    first = await networks.prepare(VM, "", pod.launcher)
    held = Tap(pod, tap)
    assert held.send(FRAME)
    before = (await namespaces.run(pod.launcher.network, ("nft", "list", "ruleset"))).decode()
    for _ in range(2):
        await networks.leave(VM, card, "", pod.launcher)
    left = await links(pod)
    assert tap not in left
    rules = (await namespaces.run(pod.launcher.network, ("nft", "list", "ruleset"))).decode()
    assert f'"{tap}"' in before
    assert f'"{tap}"' not in rules
    if card == "lan":
        assert (attachments.link("lan") in left, "UP" in left[PARKED]["flags"]) == (False, False)
        assert network.TAP in left
    else:
        assert not {network.BRIDGE, network.CONTROL_TAP} & left.keys()
        assert attachments.tap("lan") in left
    assert not held.send(FRAME)
    held.close()
    assert await networks.prepare(VM, "", pod.launcher) == first
    made = {each.name: each for each in first}
    assert await networks.join(VM, card, "", pod.launcher) == made[card]


async def test_coming_card_needs_the_link_of_its_own_network(pod: Pod) -> None:
    only = {**VM, "status": {"running": {"domain": {"devices": {"interfaces": []}}}}}
    with pytest.raises(setup.NotInPod, match="no network default/lan"):
        await pods.NETWORKS.join(only, "lan", "", pod.launcher)
    run("ip", "-n", pod.name, "link", "set", attachments.link("lan"), "name", PARKED)
    made = await pods.NETWORKS.join(only, "lan", "", pod.launcher)
    assert (made.mac, made.addresses) == ("52:54:00:00:00:77", ("192.168.7.9",))
