from __future__ import annotations

from typing import Any

import pytest

from apiserver.apis.meta.objects import Object
from tests.cluster.api import is_true
from tests.cluster.kube import Console, Kubectl, console, eventually
from tests.cluster.manifests import linux_vm, migration
from tests.cluster.test_bad_days import await_recovery, kill_all
from tests.cluster.test_further_networks import ASKER, ONE, definition, ip, joins, sees, switch, take_address  # noqa: F401 - fixture
from tests.cluster.test_migrations import final_phase, other_node

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

VM, MAC = "carded", "52:54:00:00:0e:17"
DEFAULT: dict[str, Any] = {"name": "default"}
LAN: dict[str, Any] = {"name": "lan", "network": "carded", "mac": MAC}
PATH = "spec.domain.devices.interfaces[lan]"


def edit(kubectl: Kubectl, *cards: dict[str, Any]) -> None:
    kubectl.api.patch("vm", VM, {"spec": {"domain": {"devices": {"interfaces": list(cards)}}}})


def until_cards(kubectl: Kubectl, *expected: str) -> Object:
    def check(vm: Object) -> bool:
        status = vm["status"]
        devices = [each["name"] for each in status.get("devices") or () if each["kind"] == "interface"]
        told = [each["name"] for each in status.get("interfaces") or ()]
        return devices == told == list(expected) and "running" not in status

    return kubectl.api.until("vm", VM, check, timeout=120, what=f"interfaces {expected}")


def has_card(guest: Console, mac: str) -> bool:
    return mac in guest.run("cat /sys/class/net/*/address")


def until_seen(guest: Console, mac: str, *, there: bool) -> None:
    eventually(lambda: has_card(guest, mac) == there, timeout=60, what=f"card {mac} there: {there}")


def changed_without_handler(kubectl: Kubectl, system: Kubectl, *cards: dict[str, Any]) -> None:
    killed = kill_all(system, "virt-handler")
    edit(kubectl, *cards)
    await_recovery(system, "virt-handler", killed)
    until_cards(kubectl, *(card["name"] for card in cards))


def moved(kubectl: Kubectl) -> Object:
    node = kubectl.api.get("vm", VM)["status"]["nodeName"]
    made = kubectl.api.create(migration(VM, node=other_node(kubectl, node)))
    assert final_phase(kubectl, made["metadata"]["name"]) == "Succeeded"
    vm = kubectl.api.get("vm", VM)
    assert vm["status"]["nodeName"] != node
    return vm


def test_cards_come_and_go(
    kubectl: Kubectl,
    system: Kubectl,
    testguest: None,
    further_networks: None,
    switch: str,  # noqa: F811 - fixture
) -> None:
    del testguest, further_networks
    ip("address", "add", f"{ASKER}/24", "dev", "switch", netns=joins(switch))
    kubectl.api.apply(definition("carded", switch))
    manifest = linux_vm(VM)
    manifest["spec"]["domain"]["devices"]["interfaces"] = [DEFAULT]
    kubectl.api.apply(manifest)
    vm = kubectl.api.ready("vm", VM, timeout=240)
    own = vm["status"]["interfaces"][0]["mac"]
    with console(kubectl, VM) as guest:
        guest.expect("GUEST-READY", timeout=120)
        edit(kubectl)
        until_cards(kubectl)
        kubectl.api.events("InterfaceDetached", of=VM, timeout=10)
        until_seen(guest, own, there=False)
        edit(kubectl, DEFAULT)
        vm = until_cards(kubectl, "default")
        assert vm["status"]["interfaces"][0]["ipAddress"] == vm["status"]["podIP"]
        until_seen(guest, own, there=True)
        device = guest.run(f"grep -l {own} /sys/class/net/*/address").strip().split("/")[-2]
        guest.run(f"ip link set {device} up; udhcpc -i {device} -s /usr/share/udhcpc/default.script -n -q -t 10 -T 3 >/dev/null 2>&1")
        eventually(lambda: sees(guest, "10.0.2.1"), timeout=60, what="an answer of the gateway")

        edit(kubectl, DEFAULT, LAN)
        vm = kubectl.api.until("vm", VM, lambda each: "changes" in each["status"], timeout=60, what="a change")
        (change,) = vm["status"]["changes"]
        assert (change["path"], change["state"]) == (PATH, "Pending")
        assert change["message"].endswith(" migrate the machine (kubectl virt migrate) or restart it")
        assert not is_true("RestartRequired")(vm)
        assert not has_card(guest, MAC)
    moved(kubectl)
    until_cards(kubectl, "default", "lan")
    with console(kubectl, VM) as guest:
        until_seen(guest, MAC, there=True)
        take_address(guest, MAC, ONE)
        eventually(lambda: sees(guest, ASKER), timeout=60, what="an answer on the further network")
    changed_without_handler(kubectl, system, DEFAULT)
    with console(kubectl, VM) as guest:
        until_seen(guest, MAC, there=False)
        assert has_card(guest, own)
    changed_without_handler(kubectl, system, DEFAULT, LAN)
    with console(kubectl, VM) as guest:
        until_seen(guest, MAC, there=True)
    moved(kubectl)
    with console(kubectl, VM) as guest:
        take_address(guest, MAC, ONE)
        eventually(lambda: sees(guest, ASKER), timeout=60, what="an answer after the migration")
        edit(kubectl, DEFAULT)
        until_cards(kubectl, "default")
        until_seen(guest, MAC, there=False)
