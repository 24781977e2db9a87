"""The example agent on a real kube-apiserver, with the rights of its manifest. The test acts as csi-addons' controller."""

from __future__ import annotations

import http.client
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from controller.reconcilers.fencing.fence_agent import Executable, Failed
from tests.reference_server.environment import Environment, environment

EXAMPLES: Final = Path(__file__).parents[2] / "examples" / "fence_agents"
FENCES: Final = "/apis/csiaddons.openshift.io/v1alpha1/networkfences"
MACHINES: Final = "/apis/kubevirt.io/v1alpha1/namespaces/default/virtualmachines"
CLAIMS: Final = "/api/v1/namespaces/default/persistentvolumeclaims"
RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
PATHS: Final = {
    "ServiceAccount": "/api/v1/namespaces/kubevirt/serviceaccounts",
    "ClusterRole": f"{RBAC}/clusterroles",
    "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
}
CEPH, NFS = "rook-ceph.rbd.csi.ceph.com", "nfs.csi.k8s.io"
ENTRY: Final[dict[str, Any]] = {
    "driver": CEPH,
    "cidrs": ["192.0.2.11/32"],
    "parameters": {"clusterID": "rook-ceph"},
    "secret": {"name": "provisioner", "namespace": "rook-ceph"},
}
ANY: Final = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
TEXTS: Final = {"type": "array", "items": {"type": "string"}}
TEXT: Final = {"type": "string"}
FENCE: Final = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "spec": {
            "type": "object",
            "required": ["cidrs", "driver", "fenceState"],
            "properties": {
                "cidrs": TEXTS,
                "driver": TEXT,
                "fenceState": {"type": "string", "default": "Fenced", "enum": ["Fenced", "Unfenced"]},
                "parameters": {"type": "object", "additionalProperties": TEXT},
                "secret": {"type": "object", "properties": {"name": TEXT, "namespace": TEXT}},
            },
        },
        "status": {"type": "object", "properties": {"result": TEXT, "message": TEXT}},
    },
}
NUMBERS = itertools.count(1)


def definition(plural: str, kind: str, group: str, scope: str, schema: dict[str, Any]) -> dict[str, Any]:
    version = {"name": "v1alpha1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": scope, "names": {"plural": plural, "kind": kind}, "versions": [version]},
    }


class Storage:
    """The example agent with the files of its Secret, and the cluster that it calls."""

    def __init__(self, here: Environment, directory: Path) -> None:
        self._here = here
        self.secret = directory / "secret"
        self.secret.mkdir()
        (self.secret / "server").write_text(here.kubernetes_url)
        (self.secret / "ca.crt").write_bytes(here.certificates.authority.read_bytes())
        spec = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        token = self.call("POST", f"{PATHS['ServiceAccount']}/network-fence/token", spec)["status"]["token"]
        (self.secret / "token").write_text(token)
        self._agent = directory / "agent"
        self._agent.write_text(f"#!/bin/sh\nexec {EXAMPLES / 'network_fence.py'} {self.secret}\n")
        self._agent.chmod(0o755)
        self.node = f"node{next(NUMBERS)}"

    def call(self, method: str, path: str, body: Any = None) -> Any:
        code, answer = self._here.call(method, path, body)
        assert code < http.client.BAD_REQUEST, answer
        return answer

    async def fence(self, *entries: dict[str, Any], boot: str = "boot-1", seconds: float = 30) -> None:
        (self.secret / "nodes.json").write_text(json.dumps({self.node: list(entries) or [ENTRY]}))
        node = {"metadata": {"name": self.node, "uid": "u"}, "status": {"nodeInfo": {"bootID": boot}}}
        await Executable(self._agent, seconds).switch_off(node)

    def fences(self) -> list[dict[str, Any]]:
        found = self.call("GET", f"{FENCES}?labelSelector=kubevirt.io/fenced-node={self.node}")["items"]
        return [dict(each) for each in found]

    def tell(self, name: str, result: str) -> None:
        found = self.call("GET", f"{FENCES}/{name}")
        self.call("PUT", f"{FENCES}/{name}/status", {**found, "status": {"result": result, "message": "ceph said so"}})

    @contextmanager
    def answering(self, result: Callable[[dict[str, Any]], str]) -> Iterator[None]:
        """Set the status of each new NetworkFence; an empty ``result`` leaves it without one."""
        over, told = threading.Event(), set[str]()

        def answer() -> None:
            while not over.wait(0.1):
                for each in self.fences():
                    if (name := each["metadata"]["name"]) not in told and (words := result(each)):
                        self.tell(name, words)
                        told.add(name)

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def pod(self, *volumes: dict[str, Any], machine: str = "") -> None:
        mine = {"kubevirt.io": "virt-launcher", "vm.kubevirt.io/name": machine} if machine else {}
        spec = {"nodeName": self.node, "containers": [{"name": "compute", "image": "x"}], "volumes": list(volumes)}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"pod-{next(NUMBERS)}", "labels": mine}, "spec": spec}
        self.call("POST", "/api/v1/namespaces/default/pods", pod)

    def claim(self, driver: str) -> dict[str, Any]:
        """Create a claim on a volume of this CSI driver ("": NFS); return a pod's volume that uses it."""
        name = f"claim-{next(NUMBERS)}"
        shared = {"accessModes": ["ReadWriteOnce"]}
        source = {"csi": {"driver": driver, "volumeHandle": name}} if driver else {"nfs": {"server": "192.0.2.1", "path": "/"}}
        volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}}
        self.call("POST", "/api/v1/persistentvolumes", {**volume, "spec": {**shared, "capacity": {"storage": "1Gi"}, **source}})
        wanted = {**shared, "volumeName": name, "resources": {"requests": {"storage": "1Gi"}}}
        self.call("POST", CLAIMS, {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": wanted})
        return {"name": "disk", "persistentVolumeClaim": {"claimName": name}}

    def machine(self, *disks: str, **spec: Any) -> str:
        name = f"vm-{next(NUMBERS)}"
        devices = {"disks": [{"type": each} for each in disks]}
        made = {"apiVersion": "kubevirt.io/v1alpha1", "kind": "VirtualMachine", "metadata": {"name": name}}
        self.call("POST", MACHINES, {**made, "spec": {"domain": {"devices": devices}, **spec}})
        return name


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    with environment(tmp_path_factory.mktemp("fences")) as made:
        for each in (
            definition("networkfences", "NetworkFence", "csiaddons.openshift.io", "Cluster", FENCE),
            definition("virtualmachines", "VirtualMachine", "kubevirt.io", "Namespaced", ANY),
        ):
            made.ensure("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", each)
        made.ensure("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kubevirt"}})
        for each in yaml.safe_load_all((EXAMPLES / "network_fence.yaml").read_text()):
            if each["kind"] in PATHS:
                made.ensure(PATHS[each["kind"]], each)
        deadline = time.monotonic() + 60
        while any(made.call("GET", path)[0] != http.client.OK for path in (FENCES, MACHINES)):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        yield made


@pytest.fixture
def storage(here: Environment, tmp_path: Path) -> Storage:
    return Storage(here, tmp_path)


def succeeds(_: dict[str, Any]) -> str:
    return "Succeeded"


async def test_a_node_is_off_once_csi_addons_reports_each_fence(storage: Storage) -> None:
    storage.pod(storage.claim(CEPH), {"name": "tmp", "emptyDir": {}}, machine=storage.machine("PersistentVolumeClaim", "Image"))
    with storage.answering(succeeds):
        await storage.fence(ENTRY, {**ENTRY, "driver": "rook-ceph.cephfs.csi.ceph.com"})
        await storage.fence(ENTRY, {**ENTRY, "driver": "rook-ceph.cephfs.csi.ceph.com"})
    found = [each["spec"] for each in storage.fences()]
    assert [each["driver"] for each in found] == [CEPH, "rook-ceph.cephfs.csi.ceph.com"]
    assert found[0] == {**ENTRY, "fenceState": "Fenced"}


async def test_a_fence_without_success_proves_nothing(storage: Storage) -> None:
    with pytest.raises(Failed, match="no answer within 3 s"):
        await storage.fence(seconds=3)
    storage.tell(storage.fences()[0]["metadata"]["name"], "Failed")
    with pytest.raises(Failed, match="ceph said so"):
        await storage.fence()


async def test_one_of_two_fences_is_not_enough(storage: Storage) -> None:
    with (
        storage.answering(lambda each: "Succeeded" if each["spec"]["driver"] == CEPH else ""),
        pytest.raises(Failed, match="no answer within 4 s"),
    ):
        await storage.fence(ENTRY, {**ENTRY, "driver": NFS}, seconds=4)


async def test_success_of_an_earlier_boot_or_edited_fence_is_void(storage: Storage) -> None:
    with storage.answering(succeeds):
        await storage.fence()
    with pytest.raises(Failed, match="no answer within 3 s"):
        await storage.fence(boot="boot-2", seconds=3)
    (first,) = (each for each in storage.fences() if each.get("status"))
    storage.call("PUT", f"{FENCES}/{first['metadata']['name']}", {**first, "spec": {**first["spec"], "fenceState": "Unfenced"}})
    with pytest.raises(Failed, match="was edited"):
        await storage.fence()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda storage: storage.pod(storage.claim(NFS)), f"with driver {NFS}"),
        (lambda storage: storage.pod(storage.claim("")), "with driver unknown"),
        (lambda storage: storage.pod({"name": "x", "persistentVolumeClaim": {"claimName": "none"}}), "claim none with driver unknown"),
        (lambda storage: storage.pod({"name": "x", "nfs": {"server": "192.0.2.1", "path": "/"}}), "volume of type nfs"),
        (lambda storage: storage.pod(machine=storage.machine("Image", "RBD")), "disk of type RBD"),
        (lambda storage: storage.pod(machine=storage.machine(domainXML="<domain/>")), "disk of type domainXML"),
        (lambda storage: storage.pod(machine="none"), "404"),
    ],
)
async def test_a_node_with_other_storage_is_not_fenced(storage: Storage, make: Callable[[Storage], None], said: str) -> None:
    make(storage)
    with storage.answering(succeeds), pytest.raises(Failed, match=said):
        await storage.fence()
    assert storage.fences() == []


@pytest.mark.parametrize("entries", [[], [{**ENTRY, "cidrs": []}]])
async def test_a_node_without_addresses_is_not_fenced(storage: Storage, entries: list[dict[str, Any]]) -> None:
    (storage.secret / "nodes.json").write_text(json.dumps({storage.node: entries}))
    with pytest.raises(Failed, match="no driver or no CIDRs"):
        await Executable(storage.secret.parent / "agent", 30).switch_off({"metadata": {"name": storage.node}})
