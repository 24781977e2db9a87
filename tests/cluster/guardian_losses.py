"""Guardians on the test cluster, with a third voter on the control plane's side, and nodes that are cut off or end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from apiserver.apis.meta.objects import Object, name_of
from apiserver.apis.virt import guards
from apiserver.apis.virt.places import names
from tests.cluster.api import in_phase, is_true
from tests.cluster.kube import Kubectl
from tests.ports import free_port
from tests.testbed import layout, progress, release

WITNESS: Final = "witness"
VOTERS: Final = (*(each.name for each in layout.NODES), WITNESS)


@contextmanager
def guardians(system: Kubectl, directory: Path) -> Iterator[Kubectl]:
    leases = system.within(names.node_lease_namespace(release.NAMESPACE))
    # The nodes may be virtual machines, but no test pauses this machine.
    release.install("guardian.enabled=true", "guardian.virtualNodes=true", f"guardian.voters={{{','.join(VOTERS)}}}")
    command = [
        sys.executable,
        "-m",
        "handler.guardian",
        f"--name={WITNESS}",
        "--no-guests",
        "--virtual-nodes",
        f"--lease-namespace={leases.namespace}",
    ]
    command += [f"--voters={','.join(VOTERS)}", f"--pod-ip={layout.CONTROL_PLANE_ADDRESS}", f"--port={free_port()}"]
    command += [f"--directory={directory}", f"--kubeconfig={layout.kubeconfig()}"]
    with (directory / "witness.log").open("w") as log, subprocess.Popen(command, cwd=layout.REPOSITORY, stdout=log, stderr=log) as witness:
        try:
            for voter in VOTERS:
                leases.api.until("lease", names.guardian_lease(voter), _promises, timeout=90, what=f"a promise of {voter}")
            yield leases
        finally:
            witness.terminate()
            release.install()


def _promises(lease: Object) -> bool:
    promise = guards.promise_of(lease)
    return promise is not None and not promise.withdrawn and not guards.is_sealed(lease) and set(promise.voters) == set(VOTERS)


def is_promised(leases: Kubectl, node: str, pod: Object) -> None:
    def lists(lease: Object) -> bool:
        promise = guards.promise_of(lease)
        return promise is not None and not promise.withdrawn and pod["metadata"]["uid"] in promise.pods

    leases.api.until("lease", names.guardian_lease(node), lists, timeout=60, what="a promise for the pod")


def serve_from(system: Kubectl, node: str) -> None:
    """Move all replicas of virt-controller and virt-api to ``node``, and wait. The caller has cordoned the other nodes.

    A watch through a replica of virt-api that is cut off lasts until TCP gives up, in minutes.
    """
    for name in ("virt-controller", "virt-api"):
        label, replicas = f"kubevirt.io={name}", system.api.get("deployment", name)["spec"]["replicas"]
        for each in system.api.list("pods", label_selector=label):
            if each["spec"].get("nodeName") != node:
                system.api.delete("pod", name_of(each))

        def are_there(pods: list[Object], replicas: int = replicas) -> bool:
            left = [each for each in pods if "deletionTimestamp" not in each["metadata"] and not in_phase("Succeeded", "Failed")(each)]
            return len(left) == replicas and all(each["spec"].get("nodeName") == node and is_true("Ready")(each) for each in left)

        system.api.until_list("pods", are_there, timeout=120, what=f"{name} on {node}", label_selector=label)


@contextmanager
def cut_off(node: layout.Node) -> Iterator[None]:
    _port(node, "disabled")
    try:
        yield
    finally:
        _port(node, "forwarding")


def _port(node: layout.Node, state: str) -> None:
    progress.run(["bridge", "link", "set", "dev", node.link, "state", state])
