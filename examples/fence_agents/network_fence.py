#!/usr/bin/python3
"""A fence agent that makes storage refuse a node, by NetworkFence objects of csi-addons (docs/fencing.md).

The node may run on, without power over its disks. So the agent proves nothing for a node where a pod uses other storage than the fenced.
Its data is the file nodes.json of the Secret:

    {"node1": [{"driver": "rook-ceph.rbd.csi.ceph.com", "cidrs": ["10.0.0.11/32"], "secret": {"name": "…", "namespace": "…"}}]}

One entry per CSI driver has the spec of a NetworkFence. The Secret's files token and ca.crt are for kube-apiserver, as in
network_fence.yaml; the optional file server has its URL.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import ssl
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

SECRET: Final = Path(sys.argv[1] if len(sys.argv) > 1 else "/fence-agent-secret")
SERVER: Final = "https://kubernetes.default.svc"
VERSION: Final = "1.0.0"
REQUEST_SECONDS: Final = 10.0
POLL_SECONDS: Final = 0.5
PAGE: Final = 500
FENCES: Final = "/apis/csiaddons.openshift.io/v1alpha1/networkfences"
NODE_LABEL: Final = "kubevirt.io/fenced-node"
LAUNCHER: Final = ("kubevirt.io", "virt-launcher")
POD_DISKS: Final = frozenset(
    {"PersistentVolumeClaim", "Image", "EmptyDisk", "CloudInitNoCloud", "CloudInitConfigDrive", "Secret", "ConfigMap", "DownwardAPI"}
    | {"ServiceAccount", "None"}
)
"""Types of disks that are volumes of the pod. QEMU connects to the servers of others itself, or they are the node's or a plugin's."""
LOCAL_VOLUMES: Final = frozenset({"configMap", "downwardAPI", "emptyDir", "hostPath", "image", "projected", "secret", "name"})
"""Not on storage that another node could write."""
ABSENT: Final = 404
EXISTS: Final = 409


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, which could lead to another host or to plain HTTP."""

    def redirect_request(self, *_: object) -> None:
        """Return nothing, so a redirect counts as an error."""


class Cluster:
    """A client of kube-apiserver, with the Secret's token."""

    def __init__(self, secret: Path) -> None:
        server = secret / "server"
        self._server = server.read_text().strip() if server.exists() else SERVER
        if not self._server.startswith("https://"):
            raise ValueError(f"{self._server} does not begin with https://")
        tls = ssl.create_default_context(cafile=str(secret / "ca.crt"))
        self._opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=tls), NoRedirects)
        token = (secret / "token").read_text().strip()
        self._headers = {"Authorization": f"Bearer {token}", "Accept": "application/json", "Content-Type": "application/json"}

    def ask(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Get the object at ``path``, or create ``body`` there; return the answer.

        Raises HTTPError or another OSError, HTTPException, or ValueError.
        """
        content = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(self._server + path, content, self._headers)  # noqa: S310 - checked above
        with self._opener.open(asked, timeout=REQUEST_SECONDS) as answer:
            found = json.loads(answer.read())
        return found if isinstance(found, dict) else {}

    def items(self, path: str) -> Iterator[dict[str, Any]]:
        """Yield the objects of a list, page by page; ``path`` must have a query."""
        more = ""
        while True:
            found = self.ask(f"{path}&limit={PAGE}&continue={urllib.parse.quote(more)}")
            yield from found.get("items") or []
            more = (found.get("metadata") or {}).get("continue") or ""
            if not more:
                return


def uncovered(cluster: Cluster, node: str, drivers: set[str]) -> Iterator[str]:
    """Yield a message for each volume or disk of the node's pods that a fence of these drivers does not cut off."""
    selector = urllib.parse.quote(f"spec.nodeName={node}")
    for pod in cluster.items(f"/api/v1/pods?fieldSelector={selector}"):
        metadata = pod["metadata"]
        where = f"pod {metadata['namespace']}/{metadata['name']}"
        for volume in pod["spec"].get("volumes") or []:
            if claim := _claim_of(volume, metadata["name"]):
                driver = _driver_of(cluster, metadata["namespace"], claim)
                if driver not in drivers:
                    yield f"{where} uses claim {claim} with driver {driver or 'unknown'}"
            elif others := volume.keys() - LOCAL_VOLUMES:
                yield f"{where} uses a volume of type {', '.join(sorted(others))}"
        labels = metadata.get("labels") or {}
        if labels.get(LAUNCHER[0]) == LAUNCHER[1]:
            for kind in _other_disks(cluster, metadata["namespace"], labels.get("vm.kubevirt.io/name", "")):
                yield f"{where} has a disk of type {kind}"


def _claim_of(volume: dict[str, Any], pod: str) -> str:
    if "ephemeral" in volume:
        return f"{pod}-{volume['name']}"
    return str((volume.get("persistentVolumeClaim") or {}).get("claimName") or "")


def _driver_of(cluster: Cluster, namespace: str, claim: str) -> str:
    quoted = urllib.parse.quote
    try:
        volume = cluster.ask(f"/api/v1/namespaces/{quoted(namespace)}/persistentvolumeclaims/{quoted(claim)}")["spec"].get("volumeName")
        found = cluster.ask(f"/api/v1/persistentvolumes/{quoted(volume or '')}")["spec"] if volume else {}
    except urllib.error.HTTPError as error:
        if error.code != ABSENT:
            raise
        return ""
    return str((found.get("csi") or {}).get("driver") or "")


def _other_disks(cluster: Cluster, namespace: str, name: str) -> set[str]:
    quoted = urllib.parse.quote
    machine = cluster.ask(f"/apis/kubevirt.io/v1alpha1/namespaces/{quoted(namespace)}/virtualmachines/{quoted(name)}")
    forms = (machine.get("spec") or {}, (machine.get("status") or {}).get("running") or {})
    if any(form.get("domainXML") for form in forms):
        return {"domainXML"}
    disks = [each for form in forms for each in ((form.get("domain") or {}).get("devices") or {}).get("disks") or []]
    return {str(each.get("type")) for each in disks} - POD_DISKS


def fence(cluster: Cluster, node: dict[str, Any], entries: list[dict[str, Any]]) -> None:
    """Create a NetworkFence for each entry, and wait for each success, without a limit. Raises ValueError after a failure."""
    boot = hashlib.sha256(f"{node.get('uid')} {node.get('bootID')}".encode()).hexdigest()[:12]
    waiting = [f"kubevirt-{node['name']}-{boot}-{number}" for number in range(len(entries))]
    for name, entry in zip(waiting, entries, strict=True):
        _create(cluster, name, node["name"], {**entry, "fenceState": "Fenced"})
    pairs = list(zip(waiting, entries, strict=True))
    while pairs := [each for each in pairs if not _is_fenced(cluster, *each)]:
        time.sleep(POLL_SECONDS)


def _create(cluster: Cluster, name: str, node: str, spec: dict[str, Any]) -> None:
    made = {
        "apiVersion": "csiaddons.openshift.io/v1alpha1",
        "kind": "NetworkFence",
        "metadata": {"name": name, "labels": {NODE_LABEL: node}},
        "spec": spec,
    }
    try:
        cluster.ask(FENCES, made)
    except urllib.error.HTTPError as error:
        if error.code != EXISTS:
            raise


def _is_fenced(cluster: Cluster, name: str, entry: dict[str, Any]) -> bool:
    """Return whether csi-addons reports success for this fence.

    Raises ValueError if it failed, was edited, or differs from ``entry``; HTTPError if it is absent; errors of ``Cluster.ask``.
    """
    found = cluster.ask(f"{FENCES}/{name}")
    metadata, spec, status = found["metadata"], found["spec"], found.get("status") or {}
    # The status does not name the generation to which it belongs.
    is_same = metadata.get("generation") == 1 and spec.get("fenceState") == "Fenced" and not metadata.get("deletionTimestamp")
    if not is_same or any(spec.get(key) != value for key, value in entry.items()):
        raise ValueError(f"NetworkFence {name} was edited, or is not what nodes.json says: delete it")
    if status.get("result") == "Failed":
        raise ValueError(f"NetworkFence {name}: {status.get('message')}")
    return bool(status.get("result") == "Succeeded")


def switch_off(cluster: Cluster, node: dict[str, Any], entries: list[dict[str, Any]]) -> None:
    """Fence the node from its storage. Raises ValueError if that would not cut off all that its pods use."""
    drivers = {str(each["driver"]) for each in entries}
    if not entries or not all(each.get("cidrs") for each in entries):
        raise ValueError(f"nodes.json has no driver or no CIDRs for node {node['name']}")
    if others := list(uncovered(cluster, node["name"], drivers)):
        raise ValueError(f"a fence of {', '.join(sorted(drivers))} would not cut off all storage: {'; '.join(others[:3])}")
    fence(cluster, node, entries)


def main() -> int:
    """Answer virt-controller's request on standard input; return the exit status, 1 after an error."""
    asked = json.load(sys.stdin)
    try:
        if asked.get("version") != VERSION or asked.get("command") != "OFF":
            raise ValueError(f"unknown version or command: {asked.get('version')} {asked.get('command')}")
        node = asked["node"]
        entries = json.loads((SECRET / "nodes.json").read_text()).get(node["name"])
        if entries is None:
            raise ValueError(f"nodes.json has no node {node['name']}")
        switch_off(Cluster(SECRET), node, entries)
    except (OSError, ValueError, KeyError, http.client.HTTPException) as error:
        print(json.dumps({"version": VERSION, "msg": f"{type(error).__name__}: {error}"}))
        return 1
    print(json.dumps({"version": VERSION, "state": "off"}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
