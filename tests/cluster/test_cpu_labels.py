from __future__ import annotations

import http.client

import pytest

from apiserver.apis.virt.places import names
from tests.cluster import patching
from tests.cluster.kube import Kubectl
from tests.cluster.test_node_restriction import Stolen, handlers, other
from tests.cluster.test_node_restriction import stolen as stolen  # noqa: PLC0414 - a fixture

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

MODEL = f"{names.CPU_MODEL_LABELS}of-a-test"


def label(thief: Kubectl, node: str, **labels: str) -> tuple[int, str]:
    return patching.patch(thief, f"/api/v1/nodes/{node}", {"metadata": {"labels": labels}})


def test_node_labels_only_the_abilities_of_its_processors(kubectl: Kubectl, system: Kubectl, stolen: Stolen) -> None:
    node = min(handlers(system))
    elsewhere = other(system, node)
    thief = stolen(node)
    try:
        assert label(thief, node, **{MODEL: "true"})[0] == http.client.OK
        assert kubectl.api.get("node", node)["metadata"]["labels"][MODEL] == "true"
        for target, labels, why in (
            (elsewhere, {MODEL: "true"}, "may update only that Node"),
            (node, {MODEL: "false"}, "may add only labels"),
            (node, {"node-role.kubernetes.io/control-plane": "true"}, "may add only labels"),
        ):
            code, message = label(thief, target, **labels)
            assert (code, why in message) == (http.client.FORBIDDEN, True), message
        code, message = label(stolen(None), node, **{MODEL: "true"})
        assert (code, "names no node" in message) == (http.client.FORBIDDEN, True), message
    finally:
        kubectl.api.patch("node", node, {"metadata": {"labels": {MODEL: None}}})


def test_node_without_kvm_has_no_cpu_labels(kubectl: Kubectl, system: Kubectl) -> None:
    for node, pod in handlers(system).items():
        lease = kubectl.api.within(names.node_lease_namespace(pod["metadata"]["namespace"])).get("lease", names.handler_lease(node))
        found = [each for each in kubectl.api.get("node", node)["metadata"]["labels"] if each.startswith(names.CPU_LABELS)]
        assert bool(found) is lease["metadata"]["annotations"]["kubevirt.io/acceleration"].startswith("kvm")


def test_libvirt_was_asked_before_virt_handler_began(system: Kubectl) -> None:
    for pod in handlers(system).values():
        (asking,) = pod["status"].get("initContainerStatuses", [])
        assert asking["state"]["terminated"]["exitCode"] == 0
        said = system("logs", pod["metadata"]["name"], "-c", asking["name"])
        assert "is not known" not in said
