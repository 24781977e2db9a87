from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from apiserver.apis.meta.objects import Object, condition
from apiserver.apis.virt import guards
from apiserver.apis.virt.places import names
from tests.cluster import guardian_losses, losses
from tests.cluster.kube import Kubectl
from tests.cluster.manifests import blank_disk, claim_disk, shared_claim, tiny_vm, with_disks
from tests.cluster.test_node_shutdown import cordoned, runs_on
from tests.testbed import kubectl as testbed_kubectl
from tests.testbed import layout

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not testbed_kubectl.is_own_cluster(), reason="links are cut and processes ended in the process table of this machine"
    ),
]
LIMIT_SECONDS = 90.0


@pytest.fixture(scope="module")
def leases(system: Kubectl, testguest: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    with guardian_losses.guardians(system, tmp_path_factory.mktemp("guardian")) as found:
        yield found


def a_guest(kubectl: Kubectl, system: Kubectl, leases: Kubectl, name: str, node: layout.Node, other: str) -> Object:
    kubectl.api.apply(shared_claim(name), blank_disk(name))
    kubectl.api.until("job", f"make-{name}", lambda job: job["status"].get("succeeded") == 1, timeout=120, what="the disk")
    with cordoned(system, node.name):
        guardian_losses.serve_from(system, other)
    with cordoned(system, other):
        kubectl.api.create(with_disks(tiny_vm(name), claim_disk(name)))
        machine = kubectl.api.ready("vm", name, timeout=300)
    pod: Object = kubectl.api.get("pod", machine["status"]["podName"])
    guardian_losses.is_promised(leases, node.name, pod)
    return pod


def test_a_cut_off_guest_ends_before_it_starts_elsewhere(kubectl: Kubectl, system: Kubectl, leases: Kubectl, tmp_path: Path) -> None:
    node, other = losses.other_than_etcds(system)
    pod = a_guest(kubectl, system, leases, "cut-off", node, other)
    with losses.runs_once(f"{kubectl.namespace}_cut-off") as (watch,):
        began = time.monotonic()
        with guardian_losses.cut_off(node):
            runs_on(kubectl, "cut-off", other)
            taken = time.monotonic() - began
            sealed = leases.api.get("lease", names.guardian_lease(node.name))
        leases.api.until("lease", names.guardian_lease(node.name), lambda lease: not guards.is_sealed(lease), timeout=120, what="no seal")
        system.api.ready("node", node.name, timeout=120)
        kubectl.api.until(
            "pod", pod["metadata"]["name"], lambda found: found["status"].get("phase") == "Failed", timeout=120, what="its end"
        )
    ended = watch.pods[pod["metadata"]["uid"]] - began
    print(f"the guest ended after {ended:.1f} s, and ran elsewhere after {taken:.1f} s")
    assert 20 < ended < guards.DEFAULT.wait
    assert taken <= LIMIT_SECONDS
    assert guards.is_sealed(sealed)
    status = kubectl.api.get("vm", "cut-off")["status"]
    assert [each.get("nodeName") for each in status["attempts"]] == [node.name, other]
    assert "its guardian has ended the guest there" in status["attempts"][0]["message"]
    assert (condition(status["conditions"], "NodeLost") or {})["status"] == "False"


def test_machines_of_a_dead_node_restart_without_a_person(kubectl: Kubectl, system: Kubectl, leases: Kubectl) -> None:
    node, other = losses.other_than_etcds(system)
    pod = a_guest(kubectl, system, leases, "dead", node, other)
    ours = system.api.list("pods", field_selector=f"spec.nodeName={node.name}", label_selector="app.kubernetes.io/part-of=kubevirt")
    began = time.monotonic()
    with losses.runs_once(f"{kubectl.namespace}_dead"), losses.without_kubelet(system, node, *ours, pod):
        runs_on(kubectl, "dead", other)
        taken = time.monotonic() - began
        print(f"it ran elsewhere after {taken:.1f} s")
        assert taken <= LIMIT_SECONDS
