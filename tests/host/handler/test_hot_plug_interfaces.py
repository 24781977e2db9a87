from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import interfaces
from apiserver.apis.virt.places import network
from apiserver.apis.virt.spec import attachments
from handler.network import namespaces, setup
from handler.plugins.records import Records
from handler.reconcilers.guests.guest_machine import interface_of
from launcher.protocol import messages
from tests.host.handler import pods
from tests.host.handler.macvtaps import given_by_the_kubelet
from tests.host.handler.pods import CALLER, Pod, run
from tests.host.handler.test_guest_traffic import READY_SECONDS, Start, greeting, guest_with_network, lease, start  # noqa: F401 - fixtures
from tests.host.handler.test_network_plugins import plugins_in
from tests.host.launcher import relay, sandbox
from tests.host.launcher.guest import Guest
from tests.host.launcher.sandbox import Client, Launcher, Viewer, a_machine

pytestmark = [pytest.mark.host, pytest.mark.timeout(500)]

MAC, OTHER = "52:54:00:00:00:77", "52:54:00:00:00:78"
GIVEN, NEIGHBOUR = "192.168.7.9", "192.168.7.1"
LAN: dict[str, Any] = {"name": "lan", "type": "bridge", "network": "lan", "model": "virtio", "mac": MAC}
DEFAULT: dict[str, Any] = {"name": "default", "type": "masquerade", "model": "virtio", "mac": OTHER}
LINK = attachments.link_of_network("lan", "default/lan")


@pytest.fixture
def pod() -> Iterator[Pod]:
    with pods.a_pod() as made:
        yield made


def with_lan(pod: Pod, given: str = GIVEN) -> None:
    run("ip", "-n", pod.caller, "link", "add", "lan", "type", "veth", "peer", "name", LINK, "netns", pod.name)
    run("ip", "-n", pod.name, "link", "set", LINK, "address", MAC)
    if given:
        run("ip", "-n", pod.name, "address", "add", f"{given}/24", "dev", LINK)
    run("ip", "-n", pod.caller, "address", "add", f"{NEIGHBOUR}/24", "dev", "lan")
    for name, link in ((pod.name, LINK), (pod.caller, "lan")):
        run("ip", "-n", name, "link", "set", link, "up")


def a_vm(desired: list[dict[str, Any]], runs: list[dict[str, Any]]) -> Object:
    metadata = {"name": "testvm", "namespace": "default", "uid": "3f0e"}
    status = {"running": {"generation": 1, "domain": {"devices": {"interfaces": runs}}}}
    return {"metadata": metadata, "spec": {"domain": {"devices": {"interfaces": desired}}}, "status": status}


POD_UID = "5d1e0000-0000-4000-8000-000000000001"


async def attach(pod: Pod, client: Client, vm: Object, card: dict[str, Any], networks: setup.Networks | None = None) -> None:
    for _ in range(2):
        made = await (networks or setup.Networks()).join(vm, card["name"], POD_UID, pod.launcher)
        (full,) = interfaces.defaulted({"devices": {"interfaces": [card]}})
        client.ask(messages.AttachInterface(full, interface_of(made)))


async def detach(pod: Pod, client: Client, vm: Object, card: str, networks: setup.Networks | None = None) -> None:
    for _ in range(2):
        client.ask(messages.DetachInterface(card))
        await (networks or setup.Networks()).leave(vm, card, POD_UID, pod.launcher)


def until_card(viewer: Viewer, device: str, *, there: bool) -> None:
    test = f"test {'! ' if there else ''}-e /sys/class/net/{device}"
    viewer.sh(f"n=0; while {test} -a $n -lt 30; do sleep 1; n=$((n+1)); done")
    assert (device in viewer.sh("ls /sys/class/net").split()) == there


async def links(pod: Pod) -> dict[str, dict[str, Any]]:
    return {each["ifname"]: each for each in await namespaces.links(pod.launcher.network)}


async def test_guest_gets_a_card_on_a_further_network_and_loses_it(pod: Pod, start: Start) -> None:  # noqa: F811 - fixture
    networks, first = setup.Networks(), DEFAULT
    before = a_vm([first], [first])
    made = await networks.prepare(before, "", pod.launcher)
    machine = a_machine(devices={"graphics": [], "interfaces": [first]})
    launcher = start(pod)
    coming, leaving = a_vm([first, LAN], [first]), a_vm([first], [first, LAN])
    with launcher.client() as client, launcher.console() as viewer:
        whole = dataclasses.replace(machine, interfaces=tuple(map(interface_of, made)))
        client.ask(messages.Sync(whole))
        viewer.expect("GUEST-READY", seconds=READY_SECONDS)
        with pytest.raises(
            setup.NotInPod,
            match="the pod has no network default/lan; create this NetworkAttachmentDefinition unless it exists, then migrate",
        ):
            await networks.join(coming, "lan", "", pod.launcher)
        with_lan(pod)
        for _ in range(2):
            await attach(pod, client, coming, LAN)
            until_card(viewer, "eth1", there=True)
            assert viewer.sh("cat /sys/class/net/eth1/address") == MAC
            assert lease(viewer, "eth1")["ip"] == GIVEN
            assert "1 packets received" in viewer.sh(f"ping -c 1 -W 20 {NEIGHBOUR}")
            assert viewer.sh("cat /sys/class/net/eth0/address") == OTHER
            viewer.sh("ip link set eth1 down; ip link set eth1 address 52:54:00:00:00:99; ip link set eth1 up; ip neigh flush all")
            assert " 0 packets received" in viewer.sh(f"ping -c 1 -W 3 {NEIGHBOUR}")
            await detach(pod, client, leaving, "lan")
            until_card(viewer, "eth1", there=False)
            left = await links(pod)
            assert not {attachments.tap("lan"), attachments.bridge("lan")} & left.keys()
            assert "UP" not in left[LINK]["flags"]
            assert attachments.tap("lan") not in (await namespaces.run(pod.launcher.network, ("nft", "list", "ruleset"))).decode()
        assert network.TAP in await links(pod)


async def test_guest_gets_a_macvtap_beside_another_and_loses_it(pod: Pod, start: Start) -> None:  # noqa: F811 - fixture
    other = {**LAN, "name": "wan", "network": "wan", "type": "macvtap", "mac": OTHER}
    card = {**LAN, "type": "macvtap"}
    with given_by_the_kubelet(), given_by_the_kubelet():
        with_lan(pod, "")
        wan = attachments.link_of_network("wan", "default/wan")
        run("ip", "-n", pod.caller, "link", "add", "wan", "type", "veth", "peer", "name", wan, "netns", pod.name)
        launcher = start(pod, macvtaps=True)
        with launcher.client() as client, launcher.console() as viewer:
            client.ask(messages.Sync(a_machine(devices={"graphics": [], "interfaces": []})))
            viewer.expect("GUEST-READY", seconds=READY_SECONDS)
            await attach(pod, client, a_vm([card, other], []), card)
            await attach(pod, client, a_vm([card, other], [card]), other)
            until_card(viewer, "eth1", there=True)
            before = (await links(pod))[attachments.tap("wan")]["ifindex"]
            for _ in range(2):
                viewer.sh(f"ip link set eth0 up; ip address add {GIVEN}/24 dev eth0")
                assert "1 packets received" in viewer.sh(f"ping -c 1 -W 20 {NEIGHBOUR}")
                await detach(pod, client, a_vm([other], [card, other]), "lan")
                until_card(viewer, "eth0", there=False)
                left = await links(pod)
                assert (attachments.tap("lan") in left, left[attachments.tap("wan")]["ifindex"]) == (False, before)
                assert attachments.tap("lan") not in (await namespaces.run(pod.launcher.network, ("nft", "list", "ruleset"))).decode()
                await setup.Networks().prepare(a_vm([other], [other]), "", pod.launcher)
                await attach(pod, client, a_vm([other, card], [other]), card)
                until_card(viewer, "eth0", there=True)
            third = {**card, "name": "third", "mac": "52:54:00:00:00:79"}
            run("ip", "-n", pod.name, "link", "add", attachments.link_of_network("third", "default/lan"), "type", "veth")
            with pytest.raises(setup.NotInPod, match="the pod has no free device for a macvtap; migrate"):
                await setup.Networks().join(a_vm([third], []), "third", "", pod.launcher)


async def test_guest_gets_a_plugins_card_and_loses_it(pod: Pod, start: Start, tmp_path: Path) -> None:  # noqa: F811 - fixture
    card = {"name": "private", "type": "plugin", "plugin": "isolated", "model": "virtio", "mac": MAC}
    records = Records(tmp_path / "records")
    networks = setup.Networks(plugins_in(tmp_path, f"/run/netns/{pod.caller}"), records)

    def on_node() -> list[str]:
        return [each["ifname"] for each in json.loads(run("ip", "-n", pod.caller, "-json", "link", "show")) if each["ifname"][:2] == "is"]

    launcher = start(pod)
    with launcher.client() as client, launcher.console() as viewer:
        client.ask(messages.Sync(a_machine(devices={"graphics": [], "interfaces": []})))
        viewer.expect("GUEST-READY", seconds=READY_SECONDS)
        for _ in range(2):
            await attach(pod, client, a_vm([card], []), card, networks)
            until_card(viewer, "eth0", there=True)
            (bridge,) = (each for each in on_node() if each.startswith("iso"))
            run("ip", "-n", pod.caller, "address", "add", f"{NEIGHBOUR}/24", "dev", bridge)
            viewer.sh(f"ip link set eth0 up; ip address add {GIVEN}/24 dev eth0")
            assert "1 packets received" in viewer.sh(f"ping -c 1 -W 20 {NEIGHBOUR}")
            await detach(pod, client, a_vm([], [card]), "private", networks)
            until_card(viewer, "eth0", there=False)
            assert (on_node(), list(records.all())) == ([], [])
            assert not {attachments.tap("private"), attachments.bridge("private")} & (await links(pod)).keys()


async def test_guest_without_cards_gets_the_pods_network_and_loses_it(pod: Pod, start: Start) -> None:  # noqa: F811 - fixture
    launcher = start(pod)
    with launcher.client() as client, launcher.console() as viewer, greeting(pod, CALLER) as callers:
        client.ask(messages.Sync(a_machine(devices={"graphics": [], "interfaces": []})))
        viewer.expect("GUEST-READY", seconds=READY_SECONDS)
        for _ in range(2):
            await attach(pod, client, a_vm([DEFAULT], []), DEFAULT)
            until_card(viewer, "eth0", there=True)
            assert lease(viewer)["ip"] == network.GUEST
            assert viewer.sh(f"nc {CALLER} 80 </dev/null") == "hello-from-outside"
            await detach(pod, client, a_vm([], [DEFAULT]), "default")
            until_card(viewer, "eth0", there=False)
            assert not {network.TAP, network.BRIDGE, network.CONTROL_TAP} & (await links(pod)).keys()
            assert (await namespaces.run(pod.launcher.network, ("nft", "list", "ruleset"))).decode() == ""
        assert callers == [pods.POD] * 2
        other = {**DEFAULT, "model": "e1000e"}
        await attach(pod, client, a_vm([other], []), other)
        found = "grep -l 0x10d3 /sys/bus/pci/devices/*/device"
        assert viewer.sh(f"n=0; while ! {found} >/dev/null && test $n -lt 30; do sleep 1; n=$((n+1)); done; {found}").startswith(
            "/sys/bus/pci"
        )


async def test_guest_gets_a_card_after_its_migration_and_keeps_it(program: Path, tmp_path: Path, guest_with_network: Guest) -> None:  # noqa: F811 - fixture
    coming = a_vm([DEFAULT, LAN], [DEFAULT])
    launchers: list[Launcher] = []
    with pods.a_pod() as here, pods.a_pod() as there, sandbox.killed_afterwards(launchers):
        with_lan(there, "")
        launchers += [Launcher(program, tmp_path / each.name, guest_with_network, network=each.name) for each in (here, there)]
        source, target = launchers
        with source.client() as at_source, target.client() as at_target, source.console() as viewer, target.console() as afterwards:
            at_source.ask(messages.Sync(a_machine(devices={"graphics": [], "interfaces": []})))
            viewer.expect("GUEST-READY", seconds=READY_SECONDS)
            await attach(here, at_source, a_vm([DEFAULT], []), DEFAULT)
            until_card(viewer, "eth0", there=True)
            made = (
                *await setup.Networks().prepare(coming, "", there.launcher),
                await setup.Networks().join(coming, "lan", "", there.launcher),
            )
            machine = a_machine(devices={"graphics": [], "interfaces": interfaces.defaulted({"devices": {"interfaces": [DEFAULT, LAN]}})})
            at_target.ask(messages.PrepareMigrationTarget("m1", dataclasses.replace(machine, interfaces=tuple(map(interface_of, made)))))
            with relay.connected(source, target):
                at_source.ask(messages.Migrate("m1"))
                at_source.until(lambda status: status.ending)
                at_target.ask(messages.ReleaseMigration("m1"))
            assert lease(afterwards)["ip"] == network.GUEST
            assert "eth1" not in afterwards.sh("ls /sys/class/net")
            await attach(there, at_target, coming, LAN)
            until_card(afterwards, "eth1", there=True)
            afterwards.sh(f"ip link set eth1 up; ip address add {GIVEN}/24 dev eth1")
            assert "1 packets received" in afterwards.sh(f"ping -c 1 -W 20 {NEIGHBOUR}")
            status = at_target.ask(messages.AttachInterface({**LAN}, interface_of(made[1])))
            assert status.not_migratable == ""
            for card, device in (("default", "eth0"), ("lan", "eth1")):
                await detach(there, at_target, a_vm([], [DEFAULT, LAN]), card)
                until_card(afterwards, device, there=False)
