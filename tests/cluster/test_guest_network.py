"""A guest's network on real parts: what it gets, whom it reaches, and what it cannot be."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.virt import names
from tests.cluster import processes
from tests.cluster.kube import Console, Kubectl, KubectlError, console, eventually
from tests.cluster.manifests import migration, tiny_vm
from tests.host.handler import breakout
from tests.host.launcher.sandbox import wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def start(kubectl: Kubectl, name: str, *interfaces: dict[str, Any]) -> dict[str, Any]:
    manifest = tiny_vm(name)
    if interfaces:
        manifest["spec"]["domain"]["devices"]["interfaces"] = list(interfaces)
    kubectl.apply(manifest)
    kubectl("wait", "vm", name, "--for=condition=Ready", "--timeout=90s", timeout=100)
    vm: dict[str, Any] = kubectl.json("get", "vm", name)
    return vm


def wait_for_address(guest: Console) -> None:
    wait_for(lambda: "10.0.2.2/24" in guest.run("ip -4 address show"), 30, "the guest's address")


def pod_of(kubectl: Kubectl, vm: dict[str, Any]) -> dict[str, Any]:
    pod: dict[str, Any] = kubectl.json("get", "pod", vm["status"]["podName"])
    return pod


def launcher_of(pod: dict[str, Any]) -> int:
    return next(pid for pid, command in processes.of_pod(pod).items() if "virt-launcher" in command)


def dropped(pod: dict[str, Any], counter: str) -> int:
    """Return how many packets of the guest a counter has; the nodes are namespaces of this machine."""
    namespace = f"--net=/proc/{launcher_of(pod)}/ns/net"
    told = subprocess.run(
        ["nsenter", namespace, "nft", "list", "counter", "netdev", "kubevirt", counter], check=True, capture_output=True, text=True
    ).stdout
    return int(re.findall(r"packets (\d+)", told)[0])


def test_guests_get_their_address_from_their_own_pods_and_reach_each_other(kubectl: Kubectl) -> None:
    card = {"name": "lan", "type": "masquerade", "mac": "02:00:00:00:0e:01"}
    one, other = start(kubectl, "net-one"), start(kubectl, "net-other", card)
    (seen,) = other["status"]["interfaces"]
    assert (seen["name"], seen["mac"]) == (card["name"], card["mac"])
    address = seen["ipAddress"]
    with console(kubectl, "net-other") as server, console(kubectl, "net-one") as client:
        for guest in (server, client):
            guest.expect("GUEST-READY", timeout=60)
            wait_for_address(guest)
        assert card["mac"] in server.run("cat /sys/class/net/eth0/address")
        assert "virtio" in client.run("readlink /sys/class/net/eth0/device/driver")
        assert "1 packets received" in client.run("ping -c 1 10.0.2.1")
        server.type("while :; do echo hello-from-other | nc -l -p 8080; done &\n")
        eventually(lambda: "hello-from-other" in client.run(f"nc -w 3 {address} 8080 </dev/null"), timeout=30, what="an answer")
        assert dropped(pod_of(kubectl, one), "foreign_ipv4") == 0


def test_a_service_means_a_port_of_the_guest_by_its_name(kubectl: Kubectl) -> None:
    """And nobody reaches another port."""
    card = {"name": "default", "ports": [{"name": "greeting", "port": 8080}]}
    server, _ = start(kubectl, "net-ports", card), start(kubectl, "net-asker")
    spec = {"selector": {names.VM_NAME_LABEL: "net-ports"}, "ports": [{"port": 80, "targetPort": "greeting"}]}
    kubectl.apply({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "greeter"}, "spec": spec})
    service, pod = kubectl.json("get", "service", "greeter")["spec"]["clusterIP"], server["status"]["podIP"]
    with console(kubectl, "net-ports") as guest, console(kubectl, "net-asker") as asker:
        for each in (guest, asker):
            each.expect("GUEST-READY", timeout=60)
            wait_for_address(each)
        for number in (8080, 8081):
            guest.run(f"(while :; do echo hello-from-{number} | nc -l -p {number}; done) 2>/dev/null & true")
        eventually(lambda: "hello-from-8080" in asker.run(f"nc -w 3 {service} 80 </dev/null"), timeout=60, what="an answer")
        assert "hello-from-8080" in asker.run(f"nc -w 3 {pod} 8080 </dev/null")
        assert "hello-from" not in asker.run(f"nc -w 3 {pod} 8081 </dev/null")


def test_a_guest_in_its_pods_place_has_its_address_and_stays_where_it_is(kubectl: Kubectl) -> None:
    bridged, _ = start(kubectl, "net-bridged", {"name": "default", "type": "bridge"}), start(kubectl, "net-beside")
    address, (seen,) = bridged["status"]["podIP"], bridged["status"]["interfaces"]
    assert seen["ipAddress"] == address == pod_of(kubectl, bridged)["status"]["podIP"]
    spec = {"selector": {names.VM_NAME_LABEL: "net-bridged"}, "ports": [{"port": 80, "targetPort": 8080}]}
    kubectl.apply({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "bridged"}, "spec": spec})
    service = kubectl.json("get", "service", "bridged")["spec"]["clusterIP"]
    with console(kubectl, "net-bridged") as guest, console(kubectl, "net-beside") as other:
        for each in (guest, other):
            each.expect("GUEST-READY", timeout=60)
        wait_for_address(other)
        wait_for(lambda: f"inet {address}/" in guest.run("ip -4 address show") or None, 30, "the guest's address")
        assert seen["mac"] in guest.run("cat /sys/class/net/eth0/address")
        guest.run("(while :; do echo hello-from-the-guest | nc -l -p 8080; done) 2>/dev/null & true")
        eventually(lambda: "hello-from-the-guest" in other.run(f"nc -w 3 {address} 8080 </dev/null"), timeout=60, what="an answer")
        eventually(lambda: "hello-from-the-guest" in other.run(f"nc -w 3 {service} 80 </dev/null"), timeout=60, what="one by the Service")
        other_address = kubectl.json("get", "vm", "net-beside")["status"]["podIP"]
        assert "1 packets received" in guest.run(f"ping -c 1 -W 10 {other_address}")
    (told,) = (each for each in kubectl.json("get", "vm", "net-bridged")["status"]["conditions"] if each["type"] == "Migratable")
    assert told["status"] == "False"
    assert "has its pod's address" in told["message"]


def test_a_guest_that_takes_other_addresses_is_not_heard(kubectl: Kubectl) -> None:
    vm, other = start(kubectl, "net-liar"), start(kubectl, "net-victim")
    address = other["status"]["interfaces"][0]["ipAddress"]
    pod = pod_of(kubectl, vm)
    with console(kubectl, "net-liar") as guest:
        guest.expect("GUEST-READY", timeout=60)
        wait_for_address(guest)
        eventually(lambda: "1 packets received" in guest.run(f"ping -c 1 {address}"), timeout=60, what="an answer of the other guest")
        guest.run("ip address add 10.99.99.99/32 dev eth0")
        assert " 0 packets received" in guest.run(f"ping -c 2 -W 1 -I 10.99.99.99 {address}")
        assert dropped(pod, "foreign_ipv4") >= 2
        guest.run(
            "ip link set eth0 down; ip link set eth0 address 02:00:00:00:00:01; ip link set eth0 up; ip route add default via 10.0.2.1"
        )
        assert "1 packets received" not in guest.run(f"ping -c 1 -W 1 {address}")
        assert dropped(pod, "foreign_mac") >= 1


def test_a_guest_that_moved_is_kept_to_its_addresses_there(kubectl: Kubectl) -> None:
    vm = start(kubectl, "net-mover")
    with console(kubectl, "net-mover") as guest:
        guest.expect("GUEST-READY", timeout=60)
        wait_for_address(guest)
    made = kubectl.create(migration("net-mover"))
    name = made["metadata"]["name"]
    eventually(lambda: kubectl.json("get", "migration", name).get("status", {}).get("phase") == "Succeeded", timeout=120, what="the move")
    moved = kubectl.json("get", "vm", "net-mover")
    assert moved["status"]["podName"] != vm["status"]["podName"]
    with console(kubectl, "net-mover") as guest:
        guest.type("\n")
        assert "1 packets received" in guest.run("ping -c 1 10.0.2.1")
        assert "obtained" in guest.run("udhcpc -i eth0 -n -q -s /usr/share/udhcpc/default.script 2>&1")
        guest.run("ip address add 10.99.99.99/32 dev eth0; ping -c 2 -W 1 -I 10.99.99.99 10.96.0.1")
        pod = pod_of(kubectl, moved)
        # Where the guest has to ask for its gateway's address first, its question has the foreign address, too.
        assert dropped(pod, "foreign_ipv4") + dropped(pod, "foreign_arp") >= 2


def test_whoever_breaks_what_reads_the_guests_packets_has_nothing(kubectl: Kubectl) -> None:
    pod = pod_of(kubectl, start(kubectl, "net-broken"))
    here = Path(f"/proc/{launcher_of(pod)}")
    status = dict(line.split(":\t", 1) for line in (here / "status").read_text().splitlines())
    assert status["Uid"].split() == ["107"] * 4
    assert {int(status[each], 16) for each in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    for namespace in ("mnt", "pid", "net", "ipc", "uts"):  # cgroup: of its own only on nodes with cgroup v2
        assert (here / "ns" / namespace).stat().st_ino != Path(f"/proc/self/ns/{namespace}").stat().st_ino

    program = Path(breakout.__file__).read_text()
    ended = json.loads(kubectl("exec", pod["metadata"]["name"], "--", "python3", "-I", "-c", program, "pod"))
    assert ended.keys() == breakout.POD.keys()
    assert [name for name, end in ended.items() if end == "done"] == []


def test_no_program_of_virt_handlers_reads_what_a_guest_sends(kubectl: Kubectl) -> None:
    start(kubectl, "net-plain")
    for handler in kubectl.within("kubevirt").json("get", "pods", "-l", "kubevirt.io=virt-handler")["items"]:
        assert all("virt-handler" in command for command in processes.of_pod(handler).values()), processes.of_pod(handler)


def test_a_machine_cannot_have_its_gateways_address(kubectl: Kubectl) -> None:
    vm = tiny_vm("net-gateway")
    vm["spec"]["domain"]["devices"]["interfaces"] = [{"name": "default", "mac": "02:00:00:00:00:01"}]
    with pytest.raises(KubectlError, match=r"spec.domain.devices.interfaces\[0\].mac: Invalid value"):
        kubectl.apply(vm)
    assert "02:00:00:00:00:01" not in kubectl("explain", "vm.spec.domain.devices.interfaces.mac")
