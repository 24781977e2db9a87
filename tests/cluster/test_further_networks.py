"""Guests on further networks, with Multus and the plugin ``bridge``."""

from __future__ import annotations

import json
import secrets
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from apiserver.apis.meta import errors
from tests.cluster.api import condition_of, in_phase, is_true
from tests.cluster.kube import Console, Kubectl, console, eventually
from tests.cluster.manifests import linux_vm, migration
from tests.cluster.neighbour import ANNOUNCING, Neighbour
from tests.cluster.serving import wait_for_addresses
from tests.cuts import watching
from tests.given_time import Deadline, Look, given, look
from tests.host.handler import frames
from tests.testbed import kubectl as testbed_kubectl
from tests.testbed import layout

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

NODE1, NODE2 = (node.name for node in layout.NODES)
ONE, OTHER, ASKER = "192.168.7.1", "192.168.7.2", "192.168.7.9"
MAC, DIRECT_MAC = "52:54:00:00:0e:07", "52:54:00:00:0e:09"

TOLD_SECONDS = 10
"""Given seconds (tests/given_time.py) without an answer to neighbours."""
STARTED_SECONDS = 0.003
"""Processor time of running vCPUs; a waiting guest has used none."""


def ip(*arguments: str, netns: str = "") -> None:
    subprocess.run(["ip", *(["-n", netns] if netns else []), *arguments], check=True, capture_output=True, text=True)


def joins(bridge: str) -> str:
    """Return the name of the network namespace that joins the nodes' bridges of this name, with ports named like the nodes."""
    return f"kv{bridge}"


@pytest.fixture(scope="module")
def switch() -> Iterator[str]:
    if not testbed_kubectl.is_own_cluster():
        pytest.skip("makes bridges on the nodes of the test bed")
    tag = secrets.token_hex(3)
    bridge = f"lan{tag}"
    namespace = joins(bridge)
    ip("netns", "add", namespace)
    try:
        ip("link", "add", "switch", "type", "bridge", netns=namespace)
        ip("link", "set", "switch", "up", netns=namespace)
        for node in layout.NODES:
            ip("link", "add", bridge, "type", "bridge", netns=node.name)
            ip("link", "add", f"up{tag}", "type", "veth", "peer", "name", node.name, "netns", namespace, netns=node.name)
            ip("link", "set", node.name, "master", "switch", "up", netns=namespace)
            ip("link", "set", f"up{tag}", "master", bridge, "up", netns=node.name)
            ip("link", "set", bridge, "up", netns=node.name)
        yield bridge
    finally:
        for node in layout.NODES:
            subprocess.run(["ip", "-n", node.name, "link", "delete", f"up{tag}"], check=False, capture_output=True)
            subprocess.run(["ip", "-n", node.name, "link", "delete", bridge], check=False, capture_output=True)
        ip("netns", "delete", namespace)


def definition(name: str, bridge: str) -> dict[str, Any]:
    """Return a NetworkAttachmentDefinition of a bridge that drops frames with another MAC address than the pod requested."""
    plugin = {"type": "bridge", "bridge": bridge, "macspoofchk": True, "ipam": {}}
    return {
        "apiVersion": "k8s.cni.cncf.io/v1",
        "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": name},
        "spec": {"config": json.dumps({"cniVersion": "1.0.0", "name": name, "plugins": [plugin]})},
    }


def machine(name: str, node: str = "", **card: str) -> dict[str, Any]:
    selector = {"nodeSelector": {"kubevirt.io/hostname": node}} if node else {}
    manifest = linux_vm(name, **selector)
    manifest["spec"]["domain"]["devices"]["interfaces"] = [{"name": "default"}, {"name": "lan", "network": "lan", **card}]
    return manifest


def lan_first(manifest: dict[str, Any]) -> dict[str, Any]:
    manifest["spec"]["domain"]["devices"]["interfaces"].reverse()
    return manifest


def wait_until_ready(kubectl: Kubectl, *names: str) -> None:
    for name in names:
        kubectl.api.ready("vm", name, timeout=150)


def of_lan(kubectl: Kubectl, name: str, *others: str) -> dict[str, Any]:
    status = kubectl.api.get("vm", name)["status"]
    found: dict[str, dict[str, Any]] = {each["name"]: each for each in status["interfaces"]}
    assert found.keys() == {"default", "lan", *others}
    assert found["default"]["ipAddress"] == status["podIP"]
    return found["lan"]


def take_address(guest: Console, mac: str, address: str) -> str:
    device = guest.run(f"grep -l {mac} /sys/class/net/*/address").strip().split("/")[-2]
    guest.run(f"ip link set {device} up; ip address add {address}/24 dev {device}")
    return device


def sees(guest: Console, address: str) -> bool:
    return "1 packets received" in guest.run(f"ping -c 1 -W 2 {address}")


@pytest.fixture(scope="module")
def lan(kubectl: Kubectl, testguest: None, further_networks: None, switch: str) -> str:
    """Return the device on the lan of ``lan-other``, which serves a word there."""
    kubectl.api.apply(definition("lan", switch))
    kubectl.api.apply(machine("lan-one", NODE1), lan_first(machine("lan-other", NODE2, type="bridge", mac=MAC)))
    wait_until_ready(kubectl, "lan-one", "lan-other")
    with console(kubectl, "lan-one") as client, console(kubectl, "lan-other") as server:
        for guest in (client, server):
            guest.expect("GUEST-READY", timeout=120)
            wait_for_addresses(guest, "10.0.2.2")
        device = take_address(server, MAC, OTHER)
        take_address(client, of_lan(kubectl, "lan-one")["mac"], ONE)
        server.run("{ while :; do echo hello-on-the-lan | nc -l -p 8080; done & }")
    return device


@contextmanager
def past_replay(kubectl: Kubectl, vm: str) -> Iterator[Console]:
    with console(kubectl, vm) as guest:
        guest.run("true")
        yield guest


def test_two_guests_meet_on_a_network_of_their_own(kubectl: Kubectl, lan: str) -> None:
    one, other = of_lan(kubectl, "lan-one"), of_lan(kubectl, "lan-other")
    assert (other["mac"], one.get("ipAddress"), other.get("ipAddress")) == (MAC, None, None)
    with past_replay(kubectl, "lan-one") as client, past_replay(kubectl, "lan-other") as server:
        eventually(lambda: sees(client, OTHER), timeout=60, what="an answer on the further network")
        eventually(lambda: "hello-on-the-lan" in client.run(f"nc -w 3 {OTHER} 8080 </dev/null"), timeout=60, what="a connection")
        eventually(lambda: sees(client, "10.0.2.1"), timeout=60, what="an answer on its pod's own network, which is another one")
        server.run(f"ip link set {lan} down; ip link set {lan} address 52:54:00:00:0e:08; ip link set {lan} up")
        assert not sees(server, ONE)
        server.run(f"ip link set {lan} down; ip link set {lan} address {MAC}; ip link set {lan} up")
        eventually(lambda: sees(server, ONE), timeout=60, what="an answer to the guest's own address")


def test_a_guest_keeps_its_place_on_the_network_when_it_moves(kubectl: Kubectl, lan: str) -> None:
    before, address = of_lan(kubectl, "lan-other"), kubectl.api.get("vm", "lan-other")["status"]["podIP"]
    name = kubectl.api.create(migration("lan-other", node=NODE1))["metadata"]["name"]
    kubectl.api.until("migration", name, in_phase("Succeeded"), timeout=300, what="the move")
    assert kubectl.api.get("vm", "lan-other")["status"]["nodeName"] == NODE1
    assert of_lan(kubectl, "lan-other") == before
    assert kubectl.api.get("vm", "lan-other")["status"]["podIP"] != address
    with past_replay(kubectl, "lan-one") as client:
        eventually(lambda: sees(client, OTHER), timeout=60, what="an answer of the guest that moved")
        assert MAC in client.run(f"ip neighbour show {OTHER} || arp -n {OTHER}")
        eventually(lambda: "hello-on-the-lan" in client.run(f"nc -w 3 {OTHER} 8080 </dev/null"), timeout=60, what="a connection")


def keep_quiet(kubectl: Kubectl, asker: tuple[str, str]) -> None:
    """Stop the guest's own frames: no IPv6, no DHCP, and a static neighbour entry for ``asker`` (MAC address, IP address)."""
    with console(kubectl, "lan-other") as guest:
        guest.type("\n")
        device = guest.run(f"grep -l {MAC} /sys/class/net/*/address").strip().split("/")[-2]
        guest.run(f"echo 1 >/proc/sys/net/ipv6/conf/{device}/disable_ipv6; killall udhcpc")
        guest.run(f"arp -i {device} -s {asker[1]} {asker[0]}")
        assert "PERM" in guest.run(f"arp -n -i {device}")


def ran_at(guest: str, source: watching.Qemu, clocks: list[Look]) -> float:
    """Wait until the guest's vCPUs run in the target's QEMU; return that monotonic time. AssertionError after 300 s.

    Each try appends a Look to ``clocks``.
    """
    first: watching.Qemu | None = None
    deadline = Deadline(300)
    while not deadline.is_over:
        clocks.append(look())
        target = next((each for each in watching.qemus(guest) if each.pid != source.pid), None)
        if target is not None and first is not None and target.processor_seconds > first.processor_seconds + STARTED_SECONDS:
            return time.monotonic()
        first = first or target
        time.sleep(0.01)
    raise AssertionError("the guest was not seen to run at the target")


def test_neighbours_are_told_where_a_guest_is_that_has_moved(
    kubectl: Kubectl, lan: str, switch: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A switch would forget the old place only after five minutes."""
    here = kubectl.api.get("vm", "lan-other")["status"]["nodeName"]
    there = NODE1 if here == NODE2 else NODE2
    namespace, device = joins(switch), "switch"
    ip("address", "add", f"{ASKER}/24", "dev", device, netns=namespace)
    (link,) = json.loads(subprocess.run(["ip", "-n", namespace, "-json", "link", "show", device], check=True, capture_output=True).stdout)
    asker = str(link["address"]), ASKER
    keep_quiet(kubectl, asker)
    (source,) = watching.qemus(f"{kubectl.namespace}_lan-other")
    with Neighbour(namespace, device, asker, (MAC, OTHER)) as neighbour:
        eventually(neighbour.answers, timeout=90, what="an answer before the move")
        assert {each.port for each in neighbour.heard} == {here}
        name = kubectl.api.create(migration("lan-other", node=there))["metadata"]["name"]
        clocks: list[Look] = []
        began = ran_at(f"{kubectl.namespace}_lan-other", source, clocks)

        def is_answered_there() -> bool:
            answered = neighbour.answers()[-1].port == there
            clocks.append(look())
            return answered

        eventually(is_answered_there, timeout=TOLD_SECONDS, interval=0.05, what="an answer from the other node")
        kubectl.api.until("migration", name, in_phase("Succeeded"), timeout=120, what="the end of the move")
    last = max(each.at for each in neighbour.answers() if each.port == here)
    heard = [each for each in neighbour.heard if each.port == there]
    answer = next(each for each in heard if each.kind == frames.IPV4)
    announced = [each for each in heard if each.kind in ANNOUNCING and each.at < answer.at]
    assert announced
    before, after = (next(each for each in clocks if each.wall >= at) for at in (last, answer.at))
    assert last < answer.at
    assert given(before, after) < TOLD_SECONDS
    with capsys.disabled():
        seconds = ", ".join(f"{each.at - began:+.2f} ({each.kind:04x})" for each in heard if each.at < answer.at)
        print(f"\nneighbour: no answer for {answer.at - last:.2f} s; from the guest's first sign of life at the target on, in seconds:")
        print(f"  last answer from the source {last - began:+.2f}, frames from the target {seconds}, first answer {answer.at - began:+.2f}")


def test_a_missing_network_is_told_and_the_others_go_on(kubectl: Kubectl, lan: str, switch: str) -> None:
    manifest = machine("lan-late")
    manifest["spec"]["domain"]["devices"]["interfaces"][1]["network"] = "later"
    kubectl.api.apply(manifest)
    waits = kubectl.api.until("vm", "lan-late", is_true("NetworkReady", "False"), timeout=60, what="NetworkReady=False")
    told = condition_of(waits, "NetworkReady")
    assert (waits["status"]["phase"], told["reason"]) == ("Pending", "NetworkNotFound")
    assert f"{kubectl.namespace}/later" in told["message"]
    assert "NetworkNotFound" in kubectl("get", "vm", "lan-late")
    assert not kubectl.api.list("pods", label_selector="vm.kubevirt.io/name=lan-late")
    with past_replay(kubectl, "lan-one") as client:
        eventually(lambda: sees(client, OTHER), timeout=60, what="an answer of another machine")
    kubectl.api.apply(definition("later", switch))
    wait_until_ready(kubectl, "lan-late")
    assert condition_of(kubectl.api.get("vm", "lan-late"), "NetworkReady").get("status") != "False"


def test_a_guest_has_the_address_that_ipam_gave_to_its_pod(kubectl: Kubectl, lan: str, switch: str) -> None:
    """The guest also has a macvtap."""
    ranges = [[{"subnet": "192.168.7.0/24", "rangeStart": "192.168.7.77", "rangeEnd": "192.168.7.77"}]]
    ipam = {"type": "host-local", "ranges": ranges, "routes": [{"dst": "172.30.0.0/16", "gw": ONE}]}
    plugin = {"type": "bridge", "bridge": switch, "macspoofchk": True, "mtu": 1400, "ipam": ipam}
    addressed = definition("addressed", switch)
    addressed["spec"]["config"] = json.dumps({"cniVersion": "1.0.0", "name": "addressed", "plugins": [plugin]})
    manifest = machine("lan-addressed")
    manifest["spec"]["domain"]["devices"]["interfaces"][1]["network"] = "addressed"
    manifest["spec"]["domain"]["devices"]["interfaces"].append(
        {"name": "direct", "type": "macvtap", "network": "direct", "mac": DIRECT_MAC}
    )
    direct = definition("direct", switch)
    macvlan = {"type": "macvlan", "master": switch, "mode": "bridge", "ipam": {}}
    direct["spec"]["config"] = json.dumps({"cniVersion": "1.0.0", "name": "direct", "plugins": [macvlan]})
    kubectl.api.apply(addressed, direct, manifest)
    wait_until_ready(kubectl, "lan-addressed")
    found = of_lan(kubectl, "lan-addressed", "direct")
    assert found["ipAddress"] == "192.168.7.77"
    migratable = condition_of(kubectl.api.get("vm", "lan-addressed"), "Migratable")
    assert (migratable["status"], "interface 'lan' has an address from its pod's IPAM" in migratable["message"]) == ("False", True)
    with console(kubectl, "lan-addressed") as guest:
        guest.expect("GUEST-READY", timeout=120)
        device = guest.run(f"grep -l {found['mac']} /sys/class/net/*/address").strip().split("/")[-2]
        eventually(lambda: "192.168.7.77/24" in guest.run(f"ip -4 address show dev {device}"), timeout=60, what="the address")
        eventually(lambda: sees(guest, ONE), timeout=60, what="an answer of the neighbour")
        with console(kubectl, "lan-one") as neighbour:
            neighbour.type("\n")
            take_address(neighbour, of_lan(kubectl, "lan-one")["mac"], "192.168.8.1")
        card = take_address(guest, DIRECT_MAC, "192.168.8.2")
        eventually(lambda: sees(guest, "192.168.8.1"), timeout=60, what="an answer by the macvtap")
        guest.run(f"ip link set {card} down; ip link set {card} address 52:54:00:00:0e:0a; ip link set {card} up")
        assert not sees(guest, "192.168.8.1")
        guest.run(f"ip link set {card} down; ip link set {card} address {DIRECT_MAC}; ip link set {card} up")
        eventually(lambda: sees(guest, "192.168.8.1"), timeout=60, what="an answer to the macvtap's own address")


def network_told(kubectl: Kubectl, name: str, words: str = "") -> dict[str, Any]:
    def is_told(vm: dict[str, Any]) -> bool:
        return is_true("NetworkReady", "False")(vm) and words in condition_of(vm, "NetworkReady")["message"]

    vm = kubectl.api.until("vm", name, is_told, timeout=120, what=f"NetworkReady=False of {name}, with {words!r}")
    return condition_of(vm, "NetworkReady")


def test_broken_network_is_reported_and_repairing_it_suffices(kubectl: Kubectl, lan: str, switch: str) -> None:
    whole = definition("broken", switch)
    kubectl.api.apply({**whole, "spec": {"config": '{"type": "bridge", '}})
    manifest = machine("lan-broken")
    manifest["spec"]["domain"]["devices"]["interfaces"][1]["network"] = "broken"
    kubectl.api.apply(manifest)
    told = network_told(kubectl, "lan-broken")
    assert told["reason"] == "NetworkNotUsable"
    assert f"{kubectl.namespace}/broken: spec.config is not valid JSON" in told["message"]
    assert not kubectl.api.list("pods", label_selector="vm.kubevirt.io/name=lan-broken")

    refused = {
        "no-such-plugin": {"type": "no-such-plugin"},
        "no IP addresses available in range set": {
            "type": "bridge",
            "bridge": switch,
            "ipam": {
                "type": "host-local",
                "ranges": [
                    [{"subnet": "192.168.9.0/24", "rangeStart": "192.168.9.9", "rangeEnd": "192.168.9.9", "gateway": "192.168.9.9"}]
                ],
            },
        },
    }
    for words, plugin in refused.items():
        kubectl.api.apply({**whole, "spec": {"config": json.dumps({"cniVersion": "1.0.0", "name": "inner-name", "plugins": [plugin]})}})
        told = network_told(kubectl, "lan-broken", words)
        assert told["reason"] == "NetworkNotUsable"
        assert f"cannot connect the pod to network {kubectl.namespace}/broken: " in told["message"]
        assert "NetworkNotUsable" in kubectl("get", "vm", "lan-broken")
    with past_replay(kubectl, "lan-one") as client:
        eventually(lambda: sees(client, OTHER), timeout=60, what="an answer of another machine")
    kubectl.api.apply(whole)
    wait_until_ready(kubectl, "lan-broken")
    assert condition_of(kubectl.api.get("vm", "lan-broken"), "NetworkReady").get("status") != "False"


def test_networks_of_other_namespaces_are_refused(kubectl: Kubectl) -> None:
    manifest = machine("lan-thief")
    manifest["spec"]["domain"]["devices"]["interfaces"][1]["network"] = "kube-system/lan"
    with pytest.raises(errors.Invalid, match="networks of other namespaces are not allowed") as refused:
        kubectl.api.create(manifest)
    assert "spec.domain.devices.interfaces[1].network" in str(refused.value)
