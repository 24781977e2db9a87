from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.cluster.kube import Kubectl, console, eventually
from tests.cluster.manifests import linux_vm
from tests.cluster.serving import (
    BOTH,
    PORT,
    a_client,
    a_server,
    a_service,
    addresses_in,
    fetched,
    host,
    kept_off,
    pod_addresses,
    reached,
    serve,
    service_addresses,
)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420)]


def a_policy(name: str, app: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name},
        "spec": {"podSelector": {"matchLabels": {"app": app}}, **spec},
    }


def of_app(app: str) -> dict[str, Any]:
    return {"podSelector": {"matchLabels": {"app": app}}}


@pytest.mark.sample(4, "policies of the test bed")
def test_pods_are_kept_off_by_policies_on_both_nodes(bare_kubectl: Kubectl) -> None:
    kubectl = bare_kubectl
    kubectl.api.apply(a_server("shop", "node1"), a_service("shop", "shop", **BOTH), a_client("near", "node1"), a_client("far", "node2"))
    addresses = pod_addresses(kubectl, "shop")
    clients = ("near", "far")
    for client in clients:
        pod_addresses(kubectl, client)
        reached(kubectl, client, *addresses)
    kubectl.api.apply(a_policy("nobody", "shop", policyTypes=["Ingress"]))
    for client in clients:
        kept_off(kubectl, client, *addresses)
        kept_off(kubectl, client, *service_addresses(kubectl, "shop"), port=80)
    for client, other in (clients, clients[::-1]):
        kubectl.api.apply(a_policy("one", "shop", ingress=[{"from": [of_app(client)], "ports": [{"port": PORT}]}]))
        reached(kubectl, client, *addresses)
        for place in ("shop", *(host(each) for each in service_addresses(kubectl, "shop"))):
            assert "shop" in fetched(kubectl, client, f"http://{place}/").stdout
        kept_off(kubectl, other, *addresses)
    for name in ("nobody", "one"):
        kubectl.api.delete("networkpolicies", name)
    kubectl.api.apply(a_policy("no-way-out", "near", policyTypes=["Egress"]))
    kept_off(kubectl, "near", *addresses)
    reached(kubectl, "far", *addresses)
    kubectl.api.delete("networkpolicies", "no-way-out")
    reached(kubectl, "near", *addresses)


def test_network_policies_apply_to_guests_both_ways(kubectl: Kubectl, make_namespace: Callable[[str], Kubectl]) -> None:
    vm = linux_vm("guarded")
    vm["metadata"]["labels"] = {"app": "guarded"}
    kubectl.api.apply(vm, a_service("guarded", "guarded", **BOTH), a_server("friend"), a_server("stranger"))
    other = make_namespace("network-policies-other")
    other.api.apply(a_client("guest-of-honour"))
    status = kubectl.api.ready("vm", "guarded", timeout=120)["status"]
    addresses = pod_addresses(kubectl, str(status["podName"]))
    peers = {name: pod_addresses(kubectl, name) for name in ("friend", "stranger")}
    pod_addresses(other, "guest-of-honour")
    with console(kubectl, "guarded") as guest:
        guest.expect("GUEST-READY", timeout=90)
        serve(guest, "from-the-guest")

        def sees(name: str) -> list[str]:
            asked = [f"wget -T 4 -q -O - http://{host(each)}:{PORT}/" for each in peers[name]]
            return [each for each, command in zip(peers[name], asked, strict=True) if f"\n{name}" in guest.run(command)]

        def wait_until_seen(name: str, what: str, *, seen: bool = True) -> None:
            eventually(lambda: sees(name) == (list(peers[name]) if seen else []), timeout=90, what=what)

        for name in peers:
            reached(kubectl, name, *addresses)
            wait_until_seen(name, f"the guest reaches {name}")
        reached(other, "guest-of-honour", *addresses)

        in_namespace = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": other.namespace}}}
        kubectl.api.apply(a_policy("in", "guarded", ingress=[{"from": [of_app("friend")], "ports": [{"port": PORT}]}]))
        kept_off(kubectl, "stranger", *addresses)
        kept_off(other, "guest-of-honour", *addresses)
        reached(kubectl, "friend", *addresses)
        for place in ("guarded", *(host(each) for each in service_addresses(kubectl, "guarded"))):
            assert "from-the-guest" in fetched(kubectl, "friend", f"http://{place}/").stdout
        wait_until_seen("stranger", "the other direction, with its answers")
        kubectl.api.apply(a_policy("honour", "guarded", ingress=[{"from": [in_namespace]}]))
        reached(other, "guest-of-honour", *addresses)

        kubectl.api.apply(a_policy("out", "guarded", policyTypes=["Egress"], egress=[{"to": [of_app("friend")]}]))
        wait_until_seen("stranger", "the guest is kept off the stranger", seen=False)
        wait_until_seen("friend", "the guest still reaches its friend")


def test_nothing_of_ours_is_reached_but_what_the_chart_says(kubectl: Kubectl, system: Kubectl) -> None:
    kubectl.api.apply(a_client("curious"))
    pod_addresses(kubectl, "curious")
    ports = {"etcd": ((2379, False), (2380, False)), "virt-handler": ((8443, True), (8444, False), (8445, False), (8080, False))}
    ports |= {"virt-api": ((8443, True),), "virt-controller": ((8443, True), (8080, False))}
    found = {each: system.api.list("pods", label_selector=f"kubevirt.io={each}") for each in ports}
    asked = [(addresses_in(pod), *each) for component, expected in ports.items() for pod in found[component] for each in expected]
    with ThreadPoolExecutor(4) as pool:
        waits = [
            pool.submit(reached if is_open else kept_off, kubectl, "curious", *addresses, port=port) for addresses, port, is_open in asked
        ]
        for each in waits:
            each.result()
