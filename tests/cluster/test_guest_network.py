"""A guest's addresses, its reach, and spoofing, over IPv4 and IPv6.

The tests share the expensive guests: ``asker`` contacts all others, and migrates at the end.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.meta import errors
from apiserver.apis.virt.places import names, network
from apiserver.apis.virt.places.network import GUEST, GUEST6
from tests.cluster import processes
from tests.cluster.api import condition_of, in_phase
from tests.cluster.kube import Console, Kubectl, console, eventually, port_of_guest, said_at
from tests.cluster.manifests import linux_vm, migration
from tests.cluster.serving import BOTH, addresses_in, service_addresses, wait_for_addresses
from tests.cluster.test_probes import readiness
from tests.cluster.test_services import leads_to
from tests.host.handler import breakout
from tests.testbed import kubectl as testbed_kubectl

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


def start(kubectl: Kubectl, name: str, *interfaces: dict[str, Any]) -> dict[str, Any]:
    manifest = linux_vm(name)
    if interfaces:
        manifest["spec"]["domain"]["devices"]["interfaces"] = list(interfaces)
    kubectl.api.apply(manifest)
    return kubectl.api.ready("vm", name, timeout=90)


def pod_of(kubectl: Kubectl, vm: dict[str, Any]) -> dict[str, Any]:
    return kubectl.api.get("pod", vm["status"]["podName"])


def launcher_of(pod: dict[str, Any]) -> int:
    return next(pid for pid, command in processes.of_pod(pod).items() if "virt-launcher" in command)


def dropped(pod: dict[str, Any], counter: str) -> int:
    namespace = f"--net=/proc/{launcher_of(pod)}/ns/net"
    told = subprocess.run(
        ["nsenter", namespace, "nft", "list", "counter", "netdev", "kubevirt", counter], check=True, capture_output=True, text=True
    ).stdout
    return int(re.findall(r"packets (\d+)", told)[0])


CARD: dict[str, Any] = {"name": "lan", "type": "masquerade", "mac": "02:00:00:00:0e:01", "ports": [{"name": "greeting", "port": 8080}]}


@pytest.fixture(scope="module")
def asker(kubectl: Kubectl) -> dict[str, Any]:
    return start(kubectl, "net-asker")


@contextlib.contextmanager
def at_prompt(kubectl: Kubectl, *names: str) -> Iterator[list[Console]]:
    with contextlib.ExitStack() as stack:
        guests = [stack.enter_context(console(kubectl, name)) for name in names]
        for guest in guests:
            guest.expect("GUEST-READY|END-[0-9a-f]{8}", timeout=120)
            guest.type("\n")
        yield guests


def wait_for_both(guest: Console) -> None:
    wait_for_addresses(guest, GUEST, *([GUEST6] if testbed_kubectl.is_own_cluster() else []))


def serve(guest: Console, port: int, word: str) -> None:
    guest.run(f"(while :; do echo {word} | nc -l -p {port}; done) 2>/dev/null & true")


def answers(guest: Console, address: str, port: int, word: str) -> bool:
    return word in guest.run(f"nc -w 3 {address} {port} </dev/null")


def wait_for_answer(guest: Console, word: str, address: str, port: int = 8080) -> None:
    eventually(lambda: answers(guest, address, port, word), timeout=60, what=f"{word} at port {port} of {address}")


def wait_for_forwarded(kubectl: Kubectl, vm: str, word: str) -> None:
    with port_of_guest(kubectl, vm, "8080") as port:
        eventually(lambda: said_at(port) == word, timeout=60, what=f"{word} by kubectl virt port-forward to {vm}")


@pytest.fixture(scope="module")
def other(kubectl: Kubectl) -> dict[str, Any]:
    vm = start(kubectl, "net-other", CARD)
    with at_prompt(kubectl, "net-other") as (guest,):
        serve(guest, 8080, "hello-from-other")
    return vm


def pings(guest: Console, address: str, seconds: int = 10) -> bool:
    return "1 packets received" in guest.run(f"ping -c 1 -W {seconds} {address}", timeout=seconds + 30)


def test_guests_get_pod_addresses_and_reach_each_other(kubectl: Kubectl, asker: dict[str, Any], other: dict[str, Any]) -> None:
    (seen,) = other["status"]["interfaces"]
    assert (seen["name"], seen["mac"]) == (CARD["name"], CARD["mac"])
    addresses = addresses_in(pod_of(kubectl, other))
    assert (seen["ipAddress"], tuple(seen["ipAddresses"])) == (addresses[0], addresses)
    with at_prompt(kubectl, "net-other", "net-asker") as (server, client):
        for guest in (server, client):
            wait_for_both(guest)
        assert CARD["mac"] in server.run("cat /sys/class/net/eth0/address")
        assert "virtio" in client.run("readlink /sys/class/net/eth0/device/driver")
        for address, gateway in zip(addresses, (network.GATEWAY, network.GATEWAY6), strict=False):
            assert pings(client, gateway)
            wait_for_answer(client, "hello-from-other", address)
        wait_for_forwarded(kubectl, "net-other", "hello-from-other")
        assert dropped(pod_of(kubectl, asker), "foreign_ipv4") == 0  # its kernel rejects DHCPv6's answers


def test_a_service_means_a_port_of_the_guest_by_its_name(kubectl: Kubectl, asker: dict[str, Any], other: dict[str, Any]) -> None:
    spec = {"selector": {names.VM_NAME_LABEL: "net-other"}, "ports": [{"port": 80, "targetPort": "greeting"}], **BOTH}
    kubectl.api.apply({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "greeter"}, "spec": spec})
    services, pods = service_addresses(kubectl, "greeter"), addresses_in(pod_of(kubectl, other))
    with at_prompt(kubectl, "net-other", "net-asker") as (guest, client):
        for each in (guest, client):
            wait_for_both(each)
        serve(guest, 8081, "hello-from-8081")
        for service, pod in zip(services, pods, strict=True):
            wait_for_answer(client, "hello-from-other", service, 80)
            wait_for_answer(client, "hello-from-other", pod)
            assert not answers(client, pod, 8081, "hello-from")
            wait_for_answer(guest, "hello-from-8081", GUEST6 if ":" in pod else GUEST, 8081)
        refused = kubectl.try_run("virt", "port-forward", "net-other", ":8081")
        assert refused.returncode == 1
        assert "its interface lan does not list TCP port 8081 in ports" in refused.stderr


def test_bridge_guest_has_its_pods_address_and_stays(kubectl: Kubectl, asker: dict[str, Any]) -> None:
    bridged = start(kubectl, "net-bridged", {"name": "default", "type": "bridge"})
    (seen,), pods = bridged["status"]["interfaces"], addresses_in(pod_of(kubectl, bridged))
    assert seen["ipAddress"] == bridged["status"]["podIP"] == pods[0]
    assert tuple(seen["ipAddresses"]) == pods
    spec = {"selector": {names.VM_NAME_LABEL: "net-bridged"}, "ports": [{"port": 80, "targetPort": 8080}], **BOTH}
    kubectl.api.apply({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "bridged"}, "spec": spec})
    services = service_addresses(kubectl, "bridged")
    with at_prompt(kubectl, "net-bridged", "net-asker") as (guest, client):
        wait_for_both(client)
        wait_for_addresses(guest, *pods)
        assert seen["mac"] in guest.run("cat /sys/class/net/eth0/address")
        serve(guest, 8080, "hello-from-the-guest")
        for pod, service, client_address in zip(pods, services, addresses_in(pod_of(kubectl, asker)), strict=True):
            wait_for_answer(client, "hello-from-the-guest", pod)
            wait_for_answer(client, "hello-from-the-guest", service, 80)
            assert pings(guest, client_address)
        wait_for_forwarded(kubectl, "net-bridged", "hello-from-the-guest")
    told = condition_of(kubectl.api.get("vm", "net-bridged"), "Migratable")
    assert told["status"] == "False"
    assert "has its pod's address" in told["message"]


def policy(kind: str, *allowed: str) -> dict[str, Any]:
    direction = {"Ingress": "from", "Egress": "to"}[kind]
    peers = [{direction: [{"podSelector": {"matchLabels": {names.VM_NAME_LABEL: each}}}]} for each in allowed]
    spec = {"podSelector": {"matchLabels": {names.VM_NAME_LABEL: "net-bridged"}}, "policyTypes": [kind], kind.lower(): peers}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": kind.lower()}, "spec": spec}


def test_policies_and_probes_mean_a_guest_in_its_pods_place_too(kubectl: Kubectl, asker: dict[str, Any]) -> None:
    pods, clients = addresses_in(pod_of(kubectl, kubectl.api.get("vm", "net-bridged"))), addresses_in(pod_of(kubectl, asker))
    probe = {"httpGet": {"port": 8088, "path": "/index.html"}, "periodSeconds": 1, "timeoutSeconds": 5, "failureThreshold": 2}
    kubectl.api.patch("vm", "net-bridged", {"spec": {"readinessProbe": probe}})
    readiness(kubectl, "net-bridged", "False", "ReadinessProbeFailed")
    leads_to(kubectl, "bridged", set())
    with at_prompt(kubectl, "net-bridged", "net-asker") as (guest, client):

        def is_answered() -> bool:
            return any(answers(client, each, 8080, "hello-from-the-guest") for each in pods)

        def reaches() -> bool:
            return any(pings(guest, each, 1) for each in clients)

        kubectl.api.apply(policy("Ingress"))
        eventually(lambda: not is_answered(), timeout=60, what="a guest that nobody reaches")
        guest.run("mkdir -p /www && echo here >/www/index.html && httpd -p 8088 -h /www")
        readiness(kubectl, "net-bridged", "True", "GuestRunning")
        leads_to(kubectl, "bridged", set(pods))
        assert not is_answered()
        kubectl.api.apply(policy("Ingress", "net-asker"))
        for each in pods:
            wait_for_answer(client, "hello-from-the-guest", each)

        eventually(reaches, timeout=60, what="an answer before there is a policy")
        kubectl.api.apply(policy("Egress"))
        eventually(lambda: not reaches(), timeout=60, what="a guest that reaches nobody")
        assert not reaches()
        kubectl.api.apply(policy("Egress", "net-asker"))
        for each in clients:
            eventually(functools.partial(pings, guest, each, 1), timeout=60, what=f"an answer of {each}")


def test_a_guest_that_takes_other_addresses_is_not_heard(kubectl: Kubectl, asker: dict[str, Any], other: dict[str, Any]) -> None:
    """The test leaves the other VM's card unusable."""
    victim, pod = addresses_in(pod_of(kubectl, asker)), pod_of(kubectl, other)
    foreign = {"v4": "10.99.99.99/32", "v6": "fd00:99::99/128"}
    with at_prompt(kubectl, "net-other") as (guest,):
        wait_for_both(guest)
        for address, (version, taken) in zip(victim, foreign.items(), strict=False):
            eventually(functools.partial(pings, guest, address, 1), timeout=60, what=f"an answer of {address}")
            before = dropped(pod, f"foreign_ip{version}")
            guest.run(f"ip address add {taken} dev eth0")
            wait_for_addresses(guest, taken.partition("/")[0])
            assert " 0 packets received" in guest.run(f"ping -c 2 -W 1 -I {taken.partition('/')[0]} {address}")
            assert dropped(pod, f"foreign_ip{version}") >= before + 2
        guest.run(
            "ip link set eth0 down; ip link set eth0 address 02:00:00:00:00:01; ip link set eth0 up; ip route add default via 10.0.2.1"
        )
        assert not pings(guest, victim[0], 1)
        assert dropped(pod, "foreign_mac") >= 1


def test_compromised_packet_reader_has_no_rights(kubectl: Kubectl, other: dict[str, Any]) -> None:
    pod = pod_of(kubectl, other)
    here = Path(f"/proc/{launcher_of(pod)}")
    status = dict(line.split(":\t", 1) for line in (here / "status").read_text().splitlines())
    assert status["Uid"].split() == ["107"] * 4
    assert {int(status[each], 16) for each in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    for namespace in ("mnt", "pid", "net", "ipc", "uts"):
        assert (here / "ns" / namespace).stat().st_ino != Path(f"/proc/self/ns/{namespace}").stat().st_ino

    libraries = (here / "maps").read_text()
    assert "libvirt.so" in libraries
    assert [
        each for each in ("libkrb5", "libldap", "libnghttp2") if each in libraries
    ] == []  # emptied by images/virt-launcher/empty-library.sh

    program = Path(breakout.__file__).read_text()
    ended = json.loads(kubectl("exec", pod["metadata"]["name"], "--", "python3", "-I", "-c", program, "pod"))
    assert ended.keys() == breakout.POD.keys()
    assert [name for name, end in ended.items() if end == "done"] == []


def test_no_program_of_virt_handlers_reads_what_a_guest_sends(kubectl: Kubectl, asker: dict[str, Any]) -> None:
    ours = ("virt-handler", "handler.relays import program")  # carries migrations between nodes, with connections but no network devices

    def is_alone(handler: dict[str, Any]) -> bool:
        found = processes.of_pod(handler)
        assert found
        return all(any(each in command for each in ours) for command in found.values())

    for handler in kubectl.within("kubevirt").api.list("pods", label_selector="kubevirt.io=virt-handler"):
        eventually(functools.partial(is_alone, handler), timeout=60, what=f"no program but {ours} in {handler['metadata']['name']}")


def test_a_guest_that_moved_is_kept_to_its_addresses_there(kubectl: Kubectl, asker: dict[str, Any]) -> None:
    with at_prompt(kubectl, "net-asker") as (guest,):
        wait_for_both(guest)
    made = kubectl.api.create(migration("net-asker"))
    name = made["metadata"]["name"]
    kubectl.api.until("migration", name, in_phase("Succeeded"), timeout=300, what="the move")
    moved = kubectl.api.get("vm", "net-asker")
    assert moved["status"]["podName"] != asker["status"]["podName"]
    pod = pod_of(kubectl, moved)
    kubectl.api.until(
        "vm",
        "net-asker",
        lambda found: tuple(found["status"]["interfaces"][0]["ipAddresses"]) == addresses_in(pod),
        timeout=60,
        what="the addresses of the other pod",
    )
    with console(kubectl, "net-asker") as guest:
        guest.type("\n")
        assert pings(guest, network.GATEWAY)
        assert "obtained" in guest.run("udhcpc -i eth0 -n -q -s /usr/share/udhcpc/default.script 2>&1")
        guest.run("ip address add 10.99.99.99/32 dev eth0; ping -c 2 -W 1 -I 10.99.99.99 10.96.0.1")
        # A request for its gateway's address has the foreign address, too.
        assert dropped(pod, "foreign_ipv4") + dropped(pod, "foreign_arp") >= 2
        if len(addresses_in(pod)) > 1:
            eventually(lambda: pings(guest, network.GATEWAY6), timeout=60, what="an answer by IPv6")
            before = dropped(pod, "foreign_ipv6")
            guest.run("ip address add fd00:99::99/128 dev eth0")
            wait_for_addresses(guest, "fd00:99::99")
            guest.run(f"ping -c 2 -W 1 -I fd00:99::99 {addresses_in(pod)[1]}")
            assert dropped(pod, "foreign_ipv6") >= before + 2


def test_a_machine_cannot_have_its_gateways_address(kubectl: Kubectl) -> None:
    vm = linux_vm("net-gateway")
    vm["spec"]["domain"]["devices"]["interfaces"] = [{"name": "default", "mac": "02:00:00:00:00:01"}]
    with pytest.raises(errors.Invalid, match=r"spec.domain.devices.interfaces\[0\].mac: Invalid value"):
        kubectl.api.apply(vm)
    assert "02:00:00:00:00:01" not in kubectl("explain", "vm.spec.domain.devices.interfaces.mac")
