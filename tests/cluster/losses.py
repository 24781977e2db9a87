"""Lost nodes, and a fence agent with a board that switches them off."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from apiserver.apis.meta.objects import Object
from tests.cluster import processes
from tests.cluster.kube import Kubectl
from tests.component.handler.tls import Authority
from tests.cuts.watching import qemus
from tests.damage import never_again
from tests.fakes import board
from tests.fakes.board import Board
from tests.testbed import layout, nodes, release
from tests.testbed import processes as programs

AGENT: Final = layout.REPOSITORY / "examples" / "fence_agents" / "redfish.py"
PERIOD_SECONDS: Final = 0.1


class Watch:
    """Looks for a guest's QEMU processes."""

    def __init__(self, guest: str) -> None:
        self._guest = guest
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.most = 0
        self.pods: dict[str, float] = {}
        """Until when each pod was seen to have a QEMU."""

    def __enter__(self) -> Watch:
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(PERIOD_SECONDS):
            self._look()

    def _look(self) -> None:
        found = {each.pod_uid for each in qemus(self._guest)}
        self.most = max(self.most, len(found))
        self.pods |= dict.fromkeys(found, time.monotonic())


@contextmanager
def runs_once(*guests: str) -> Iterator[list[Watch]]:
    """Check that each guest (NAMESPACE_NAME) ran, and no two of its QEMU processes at once."""
    watches = [Watch(each) for each in guests]
    try:
        with ExitStack() as held:
            for each in watches:
                held.enter_context(each)
            yield watches
    finally:
        with never_again("two QEMU"):
            assert max(each.most for each in watches) <= 1
    assert all(each.most for each in watches), "a guest was not seen to run"


def other_than_etcds(system: Kubectl) -> tuple[layout.Node, str]:
    etcd = str(system.api.get("pod", "kubevirt-etcd-0")["spec"]["nodeName"])
    (node,) = (each for each in layout.NODES if each.name != etcd)
    return node, etcd


@contextmanager
def without_kubelet(system: Kubectl, node: layout.Node, *pods: Object) -> Iterator[None]:
    """End a node's kubelet, then these pods' processes; after the block start the kubelet, and unfence the node."""
    programs.end([f"{node.name}-kubelet"])
    try:
        for pod in pods:
            processes.kill(pod)
        yield
    finally:
        nodes.start_kubelet(node)
        system.api.ready("node", node.name, timeout=120)
        system("virt", "unfence", node.name)
        system.api.rolled_out("daemonset/virt-handler", "deployment/virt-api", "deployment/virt-controller", timeout=300)


@contextmanager
def without_power(system: Kubectl, node: layout.Node) -> Iterator[None]:
    try:
        yield
    finally:
        nodes.start(node)
        system.api.ready("node", node.name, timeout=120)
        system("virt", "unfence", node.name)
        system.api.rolled_out("daemonset/virt-handler", "deployment/virt-api", "deployment/virt-controller", timeout=300)


def handler_of(system: Kubectl, node: layout.Node) -> Object:
    (handler,) = system.api.list("pods", field_selector=f"spec.nodeName={node.name}", label_selector="kubevirt.io=virt-handler")
    return handler


@contextmanager
def fence_agent(system: Kubectl, directory: Path, made: Board, node: str) -> Iterator[None]:
    files = Authority(directory).board(layout.CONTROL_PLANE_ADDRESS)
    with board.serving(made, files.certificate, files.key, "secret", layout.CONTROL_PLANE_ADDRESS) as address:
        data = directory / "nodes.json"
        data.write_text(json.dumps({node: {"system": address, "user": "fence", "password": "secret"}}))
        system("create", "configmap", "fence-agents", f"--from-file={AGENT}")
        system("create", "secret", "generic", "boards", f"--from-file={data}", f"--from-file=ca.crt={files.authorities}")
        volume = "fencing.volume.configMap"
        try:
            release.install(
                f"fencing.agent={AGENT.name}", f"{volume}.name=fence-agents", f"{volume}.defaultMode=365", "fencing.secret=boards"
            )
            yield
        finally:
            release.install()
            system("delete", "configmap/fence-agents", "secret/boards")
