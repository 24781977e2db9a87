from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.testbed import build, layout, networks, nodes, progress


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBEVIRT_STATE", str(tmp_path / "state"))


def test_the_pods_own_network_is_what_it_was() -> None:
    for node in layout.NODES:
        assert networks.configuration(node)["delegates"] == [nodes.cni_configuration(node)]
    assert min(nodes.CNI_CONFIGURATION, networks.CONFIGURATION) == networks.CONFIGURATION


def test_pods_have_networks_of_their_own_namespace() -> None:
    assert networks.configuration(layout.NODES[0])["namespaceIsolation"] is True


def test_multus_reads_pods_and_networks_and_writes_pod_status() -> None:
    role = networks.rights()[0]
    assert json.loads(json.dumps(role["rules"])) == [
        {"apiGroups": ["k8s.cni.cncf.io"], "resources": ["network-attachment-definitions"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["update"]},
    ]


def test_a_cluster_is_made_without_what_only_some_tests_need() -> None:
    assert set(build.ON_REQUEST) < set(build.PROGRAMS)


def test_nodes_of_an_older_test_bed_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its containerd would not find the plugin, and no pod would start."""
    node = layout.NODES[0]
    (node.directory / "cni").mkdir(parents=True)
    (node.directory / "containerd.toml").write_text('bin_dirs = ["/usr/lib/cni"]\n')

    with pytest.raises(progress.StepFailed, match="make cluster-down"):
        networks.install()
    assert list((node.directory / "cni").iterdir()) == []
