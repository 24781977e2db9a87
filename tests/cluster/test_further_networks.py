"""Guests on networks of NetworkAttachmentDefinitions, on both nodes: Multus and the plugin ``bridge`` give the pods their links.

The network is one bridge on each node, joined by a switch of the test's own (a network namespace).
"""

from __future__ import annotations

import json
import secrets
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.kube import Console, Kubectl, console, eventually
from tests.cluster.manifests import migration, tiny_vm
from tests.cluster.test_guest_network import wait_for_address
from tests.testbed import kubectl as testbed_kubectl
from tests.testbed import layout

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

NODE1, NODE2 = (node.name for node in layout.NODES)
ONE, OTHER = "192.168.7.1", "192.168.7.2"
MAC = "52:54:00:00:0e:07"


def ip(*arguments: str, netns: str = "") -> None:
    subprocess.run(["ip", *(["-n", netns] if netns else []), *arguments], check=True, capture_output=True, text=True)


@pytest.fixture(scope="module")
def switch() -> Iterator[str]:
    """Make a network of both nodes, and return the name of its bridge on each of them."""
    if not testbed_kubectl.is_own_cluster():
        pytest.skip("makes bridges on the nodes of the test bed")
    tag = secrets.token_hex(3)
    bridge, namespace = f"lan{tag}", f"kvlan{tag}"
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
        for node in layout.NODES:  # with a cable goes its other end
            subprocess.run(["ip", "-n", node.name, "link", "delete", f"up{tag}"], check=False, capture_output=True)
            subprocess.run(["ip", "-n", node.name, "link", "delete", bridge], check=False, capture_output=True)
        ip("netns", "delete", namespace)


def definition(name: str, bridge: str) -> dict[str, Any]:
    """Return a network that keeps each pod to the MAC address that it asked for."""
    plugin = {"type": "bridge", "bridge": bridge, "macspoofchk": True, "ipam": {}}
    return {
        "apiVersion": "k8s.cni.cncf.io/v1",
        "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": name},
        "spec": {"config": json.dumps({"cniVersion": "1.0.0", "name": name, "plugins": [plugin]})},
    }


def machine(name: str, node: str = "", **card: str) -> dict[str, Any]:
    selector = {"nodeSelector": {"kubevirt.io/hostname": node}} if node else {}
    manifest = tiny_vm(name, **selector)
    manifest["spec"]["domain"]["devices"]["interfaces"] = [{"name": "default"}, {"name": "lan", "network": "lan", **card}]
    return manifest


def wait_until_ready(kubectl: Kubectl, *names: str) -> None:
    kubectl("wait", *(f"vm/{name}" for name in names), "--for=condition=Ready", "--timeout=150s", timeout=160)


def of_lan(kubectl: Kubectl, name: str) -> dict[str, Any]:
    found: dict[str, dict[str, Any]] = {each["name"]: each for each in kubectl.json("get", "vm", name)["status"]["interfaces"]}
    assert found.keys() == {"default", "lan"}
    assert found["default"]["ipAddress"] == kubectl.json("get", "vm", name)["status"]["podIP"]
    return found["lan"]


def take_address(guest: Console, mac: str, address: str) -> str:
    """Give the card with this MAC address an address, and return the guest's name for it."""
    device = guest.run(f"grep -l {mac} /sys/class/net/*/address").strip().split("/")[-2]
    guest.run(f"ip link set {device} up; ip address add {address}/24 dev {device}")
    return device


def sees(guest: Console, address: str) -> bool:
    return "1 packets received" in guest.run(f"ping -c 1 -W 2 {address}")


def test_two_guests_meet_on_a_network_of_their_own(kubectl: Kubectl, testguest: None, further_networks: None, switch: str) -> None:
    kubectl.apply(definition("lan", switch))
    kubectl.apply(machine("lan-one", NODE1), machine("lan-other", NODE2, type="bridge", mac=MAC))
    wait_until_ready(kubectl, "lan-one", "lan-other")
    one, other = of_lan(kubectl, "lan-one"), of_lan(kubectl, "lan-other")
    assert (other["mac"], one.get("ipAddress"), other.get("ipAddress")) == (MAC, None, None)
    with console(kubectl, "lan-one") as client, console(kubectl, "lan-other") as server:
        for guest in (client, server):
            guest.expect("GUEST-READY", timeout=120)
            wait_for_address(guest)  # of its pod's own network
        device = take_address(server, MAC, OTHER)
        take_address(client, one["mac"], ONE)
        eventually(lambda: sees(client, OTHER), timeout=60, what="an answer on the further network")
        server.type("while :; do echo hello-on-the-lan | nc -l -p 8080; done &\n")
        eventually(lambda: "hello-on-the-lan" in client.run(f"nc -w 3 {OTHER} 8080 </dev/null"), timeout=60, what="a connection")
        assert sees(client, "10.0.2.1")  # its pod's own network is another one
        server.run(f"ip link set {device} down; ip link set {device} address 52:54:00:00:0e:08; ip link set {device} up")
        assert not sees(server, ONE)
        server.run(f"ip link set {device} down; ip link set {device} address {MAC}; ip link set {device} up")
        eventually(lambda: sees(server, ONE), timeout=60, what="an answer to the guest's own address")


def test_a_guest_keeps_its_place_on_the_network_when_it_moves(kubectl: Kubectl, testguest: None, further_networks: None) -> None:
    """Goes on with the machines of the test before."""
    before = of_lan(kubectl, "lan-other")
    name = kubectl.create(migration("lan-other", node=NODE1))["metadata"]["name"]
    eventually(lambda: kubectl.json("get", "migration", name).get("status", {}).get("phase") == "Succeeded", timeout=180, what="the move")
    assert kubectl.json("get", "vm", "lan-other")["status"]["nodeName"] == NODE1
    assert of_lan(kubectl, "lan-other") == before
    with console(kubectl, "lan-one") as client:
        client.type("\n")
        eventually(lambda: sees(client, OTHER), timeout=60, what="an answer of the guest that moved")
        assert MAC in client.run(f"ip neighbour show {OTHER} || arp -n {OTHER}")
        eventually(lambda: "hello-on-the-lan" in client.run(f"nc -w 3 {OTHER} 8080 </dev/null"), timeout=60, what="a connection")


def test_a_missing_network_is_told_and_the_others_go_on(kubectl: Kubectl, testguest: None, further_networks: None, switch: str) -> None:
    """Goes on with the machines of the tests before."""
    manifest = machine("lan-late")
    manifest["spec"]["domain"]["devices"]["interfaces"][1]["network"] = "later"
    kubectl.apply(manifest)
    kubectl("wait", "vm", "lan-late", "--for=condition=NetworkReady=False", "--timeout=60s", timeout=70)
    status = kubectl.json("get", "vm", "lan-late")["status"]
    (told,) = (each for each in status["conditions"] if each["type"] == "NetworkReady")
    assert (status["phase"], told["reason"]) == ("Pending", "NetworkNotFound")
    assert f"{kubectl.namespace}/later" in told["message"]
    assert "NetworkNotFound" in kubectl("get", "vm", "lan-late")
    assert not kubectl.json("get", "pods", "-l", "vm.kubevirt.io/name=lan-late")["items"]
    with console(kubectl, "lan-one") as client:
        client.type("\n")
        assert sees(client, OTHER)
    kubectl.apply(definition("later", switch))
    wait_until_ready(kubectl, "lan-late")
    conditions = kubectl.json("get", "vm", "lan-late")["status"]["conditions"]
    assert not any(each["type"] == "NetworkReady" and each["status"] == "False" for each in conditions)


def test_networks_of_other_namespaces_are_refused(kubectl: Kubectl) -> None:
    manifest = machine("lan-thief")
    manifest["spec"]["domain"]["devices"]["interfaces"][1]["network"] = "kube-system/lan"
    refused = kubectl.try_run("create", "-f", "-", stdin=json.dumps(manifest))
    assert refused.returncode
    assert "spec.domain.devices.interfaces[1].network" in refused.stderr
    assert "pods get no networks of other namespaces" in refused.stderr
