"""NetworkPolicies count: for plain pods, which shows that the cluster enforces them at all, for guests, and for our own processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.cluster.kube import Kubectl, console, eventually
from tests.cluster.manifests import tiny_vm
from tests.cluster.serving import PORT, a_client, a_server, a_service, address_of, fetched, kept_off, reached, reaches, serve

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


def test_pods_are_kept_off_by_policies_on_both_nodes(bare_kubectl: Kubectl) -> None:
    kubectl = bare_kubectl
    kubectl.apply(a_server("shop", "node1"), a_service("shop", "shop"), a_client("near", "node1"), a_client("far", "node2"))
    address = address_of(kubectl, "shop")
    clients = ("near", "far")
    for client in clients:
        address_of(kubectl, client)
        reached(kubectl, client, address)
    kubectl.apply(a_policy("nobody", "shop", policyTypes=["Ingress"]))
    for client in clients:
        kept_off(kubectl, client, address)
        assert not reaches(kubectl, client, "shop", 80)
    for client, other in (clients, clients[::-1]):
        kubectl.apply(a_policy("one", "shop", ingress=[{"from": [of_app(client)], "ports": [{"port": PORT}]}]))
        reached(kubectl, client, address)
        assert "shop" in fetched(kubectl, client, "http://shop/").stdout
        kept_off(kubectl, other, address)
    kubectl("delete", "networkpolicy", "nobody", "one")
    kubectl.apply(a_policy("no-way-out", "near", policyTypes=["Egress"]))
    kept_off(kubectl, "near", address)
    reached(kubectl, "far", address)
    kubectl("delete", "networkpolicy", "no-way-out")
    reached(kubectl, "near", address)


def test_a_guest_is_reached_by_whom_its_policies_name_and_reaches_whom_they_name(
    kubectl: Kubectl, make_namespace: Callable[[str], Kubectl]
) -> None:
    vm = tiny_vm("guarded")
    vm["metadata"]["labels"] = {"app": "guarded"}
    kubectl.apply(vm, a_service("guarded", "guarded"), a_server("friend"), a_server("stranger"))
    other = make_namespace("network-policies-other")
    other.apply(a_client("guest-of-honour"))
    kubectl("wait", "vm", "guarded", "--for=condition=Ready", "--timeout=120s", timeout=130)
    address = address_of(kubectl, str(kubectl.json("get", "vm", "guarded")["status"]["podName"]))
    peers = {name: address_of(kubectl, name) for name in ("friend", "stranger")}
    address_of(other, "guest-of-honour")
    with console(kubectl, "guarded") as guest:
        guest.expect("GUEST-READY", timeout=90)
        serve(guest, "from-the-guest")

        def sees(name: str) -> bool:
            return f"\n{name}" in guest.run(f"wget -T 4 -q -O - http://{peers[name]}:{PORT}/")

        for name in peers:
            reached(kubectl, name, address)
            eventually(lambda name=name: sees(name), timeout=60, what=f"the guest reaches {name}")  # type: ignore[misc]  # a default binds it
        reached(other, "guest-of-honour", address)

        in_namespace = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": other.namespace}}}
        kubectl.apply(a_policy("in", "guarded", ingress=[{"from": [of_app("friend")], "ports": [{"port": PORT}]}]))
        kept_off(kubectl, "stranger", address)
        kept_off(other, "guest-of-honour", address)
        reached(kubectl, "friend", address)
        assert "from-the-guest" in fetched(kubectl, "friend", "http://guarded/").stdout
        eventually(lambda: sees("stranger"), timeout=60, what="the other direction, with its answers")
        kubectl.apply(a_policy("honour", "guarded", ingress=[{"from": [in_namespace]}]))
        reached(other, "guest-of-honour", address)

        kubectl.apply(a_policy("out", "guarded", policyTypes=["Egress"], egress=[{"to": [of_app("friend")]}]))
        eventually(lambda: not sees("stranger"), timeout=60, what="the guest is kept off the stranger")
        eventually(lambda: sees("friend"), timeout=60, what="the guest still reaches its friend")


def test_nothing_of_ours_is_reached_but_what_the_chart_says(kubectl: Kubectl, system: Kubectl) -> None:
    kubectl.apply(a_client("curious"))
    address_of(kubectl, "curious")
    ports = {"etcd": ((2379, False), (2380, False)), "virt-handler": ((8443, True), (8444, False), (8445, False), (8080, False))}
    ports |= {"virt-api": ((8443, True),), "virt-controller": ((8443, True), (8080, False))}
    for component, expected in ports.items():
        for pod in system.json("get", "pods", "-l", f"kubevirt.io={component}")["items"]:
            for port, is_open in expected:
                (reached if is_open else kept_off)(kubectl, "curious", pod["status"]["podIP"], port)
