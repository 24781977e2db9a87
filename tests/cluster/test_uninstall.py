from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

import pytest

from apiserver.apis.meta.objects import Object
from tests.cluster.kube import Kubectl, eventually
from tests.cluster.manifests import tiny_vm
from tests.testbed import kubectl as testbed_kubectl
from tests.testbed import release

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not testbed_kubectl.is_own_cluster(), reason="removes the release, and the namespace with its etcd"),
]

CONTROL_PLANE = frozenset({"virt-api", "virt-controller", "virt-handler", "etcd"})
API_SERVICE = "v1alpha1.kubevirt.io"


@dataclass(frozen=True)
class Seen:
    at: float
    type: str
    namespace: str
    name: str
    component: str
    is_deleting: bool
    exit_code: str
    message: str


_FIELDS = (
    ".type",
    ".object.metadata.namespace",
    ".object.metadata.name",
    r".object.metadata.labels.kubevirt\.io",
    ".object.metadata.deletionTimestamp",
    ".object.status.containerStatuses[0].state.terminated.exitCode",
    ".object.status.containerStatuses[0].state.terminated.message",
)
_LINE = "|".join(f"{{{each}}}" for each in _FIELDS) + '{"\\n"}'


class Journal:
    def __init__(self) -> None:
        self.events: list[Seen] = []

    def read(self, lines: IO[str]) -> None:
        for line in lines:
            found = line.rstrip("\n").split("|", len(_FIELDS) - 1)
            if len(found) == len(_FIELDS):
                type_, namespace, name, component, deleted, code, message = found
                self.events.append(Seen(time.monotonic(), type_, namespace, name, component, bool(deleted), code, message))

    def first(self, *types: str, deleting: bool = False, **wanted: str) -> Seen | None:
        return next(
            (
                each
                for each in list(self.events)
                if (each.type in types or (deleting and each.is_deleting)) and all(getattr(each, key) == wanted[key] for key in wanted)
            ),
            None,
        )


@contextmanager
def watching(kubectl: Kubectl, journal: Journal, *what: str) -> Iterator[None]:
    command = kubectl.command("get", *what, "--watch", "--output-watch-events", "-o", f"jsonpath={_LINE}")
    with subprocess.Popen(command, env=kubectl.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        reader = threading.Thread(target=journal.read, args=(process.stdout,))
        reader.start()
        try:
            yield
            assert process.poll() is None, f"the watch of {what} ended before the test did"
        finally:
            process.terminate()
            reader.join()


def settled(system: Kubectl) -> None:
    def holds(pods: list[Object]) -> bool:
        return not any("deletionTimestamp" in pod["metadata"] for pod in pods)

    system.api.until_list("pods", holds, timeout=90, what="the pods that an upgrade has replaced are gone")


def test_uninstalling_shuts_guests_down_and_leaves_the_cluster(
    kubectl: Kubectl, system: Kubectl, make_namespace: Callable[[str], Kubectl], testguest: None
) -> None:
    settled(system)
    inner = make_namespace("left-behind")
    inner.api.create(tiny_vm("one"))
    pod = inner.api.ready("vm", "one", timeout=90)["status"]["podName"]
    pods, services = Journal(), Journal()
    try:
        with (
            watching(inner, pods, "pods", "--all-namespaces", "-l", "kubevirt.io"),
            watching(inner, services, "apiservices", "--field-selector", f"metadata.name={API_SERVICE}"),
        ):
            eventually(lambda: pods.first("ADDED", name=pod) and services.first("ADDED"), timeout=90, what="the watches")

            release.uninstall()

            eventually(lambda: services.first("DELETED"), timeout=90, what="the end of the APIService is told")
        assert inner.api.list("pods") == []
        assert "kubevirt.io" not in inner("get", "apiservices", "-o", "name")
        assert inner.api.find("namespace", release.NAMESPACE) is None
        inner.api.delete("namespace", inner.namespace, timeout=60)
    finally:
        release.install()
    _check_order(pods, services, inner.namespace, pod)
    again = make_namespace("again")
    again.api.create(tiny_vm("two"))
    again.api.ready("vm", "two", timeout=90)


def _check_order(pods: Journal, services: Journal, namespace: str, pod: str) -> None:
    asked, gone = pods.first(deleting=True, namespace=namespace, name=pod), pods.first("DELETED", namespace=namespace, name=pod)
    assert asked is not None
    assert gone is not None
    ends = {(each.exit_code, each.message.partition(":")[0]) for each in pods.events if each.name == pod and each.exit_code}
    assert ends == {("0", "shutdown-requested")}
    for component in sorted(CONTROL_PLANE):
        first = pods.first("DELETED", deleting=True, namespace=release.NAMESPACE, component=component)
        assert first is not None, f"no pod of {component} was seen to go"
        assert asked.at <= gone.at < first.at, f"{component} was removed before the guest was gone"
    api = services.first("DELETED", deleting=True)
    assert api is not None
    assert gone.at < api.at, "the APIService was removed before the guest was gone"
