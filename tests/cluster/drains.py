from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from apiserver.apis.meta import errors
from apiserver.apis.meta.objects import Object
from tests.cluster.guests import ticks
from tests.cluster.kube import Kubectl

FINAL = ("Succeeded", "Failed", "Cancelled")
ANYWHERE = {"spec": {"nodeSelector": None}}
"""A patch of a VM that counts from the guest's next placement."""


def on(node: str) -> dict[str, str]:
    return {"kubernetes.io/hostname": node}


def draining(node: str, *names: str) -> list[str]:
    chosen = f"--pod-selector=vm.kubevirt.io/name in ({','.join(names)})"
    return ["drain", node, chosen, "--ignore-daemonsets", "--delete-emptydir-data"]


def drain(kubectl: Kubectl, node: str, *names: str, timeout: int) -> subprocess.CompletedProcess[str]:
    return kubectl.try_run(*draining(node, *names), f"--timeout={timeout}s", timeout=timeout + 30)


@contextmanager
def refused_drain(kubectl: Kubectl, node: str, names: Sequence[str], is_told: Callable[[str], bool]) -> Iterator[str]:
    command = kubectl.command(*draining(node, *names))
    with subprocess.Popen(command, env=kubectl.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as going:
        try:
            assert going.stderr is not None
            said = ""
            while not is_told(said):
                line = going.stderr.readline()
                assert line, f"kubectl drain ended with {going.wait()}: {said}"
                said += line
            yield said
            assert going.poll() is None, "the drain is done"
        finally:
            going.terminate()


@contextmanager
def uncordoned(kubectl: Kubectl, node: str) -> Iterator[None]:
    try:
        yield
    finally:
        kubectl.api.patch("node", node, {"spec": {"unschedulable": None}})


def migrations(kubectl: Kubectl, *names: str) -> list[Object]:
    return [each for each in kubectl.api.list("migrations") if each["spec"]["selector"]["name"] in names]


def ended(kubectl: Kubectl, name: str, *, timeout: float = 300) -> Object:

    def is_final(migration: Object) -> bool:
        return (migration.get("status") or {}).get("phase") in FINAL

    return kubectl.api.until("migrations", name, is_final, timeout=timeout, what=f"the end of migration {name}")


def runs_elsewhere(kubectl: Kubectl, name: str, node: str, *, timeout: float) -> Object:

    def is_elsewhere(vm: Object) -> bool:
        return vm["status"]["phase"] == "Running" and vm["status"].get("nodeName") not in (None, node)

    return kubectl.api.until("vm", name, is_elsewhere, timeout=timeout, what=f"{name} runs on another node than {node}")


def refused(kubectl: Kubectl, pod: str) -> str:
    try:
        kubectl.api.request("POST", _eviction_path(kubectl, pod), body=_eviction(kubectl, pod))
    except errors.StatusError as error:
        return str(error)
    raise AssertionError(f"the eviction of {pod} was granted")


def rehearsed(kubectl: Kubectl, pod: str) -> str:
    """Return what kubectl prints for a dry run: a refusal, the warning of an eviction that would wait, or nothing."""
    dry = _eviction(kubectl, pod) | {"deleteOptions": {"dryRun": ["All"]}}
    return kubectl.try_run("create", "--raw", _eviction_path(kubectl, pod), "-f", "-", stdin=json.dumps(dry)).stderr


def _eviction(kubectl: Kubectl, pod: str) -> Object:
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": kubectl.namespace}}


def _eviction_path(kubectl: Kubectl, pod: str) -> str:
    return f"/api/v1/namespaces/{kubectl.namespace}/pods/{pod}/eviction"


def together(kubectl: Kubectl, first: Object, *others: Object) -> str:
    kubectl.api.create(first)
    node = str(kubectl.api.ready("vm", first["metadata"]["name"], timeout=120)["status"]["nodeName"])
    for each in others:
        kubectl.api.create({**each, "spec": {**each["spec"], "nodeSelector": on(node)}})
    for each in others:
        kubectl.api.ready("vm", each["metadata"]["name"], timeout=120)
        kubectl.api.patch("vm", each["metadata"]["name"], ANYWHERE)
    return node


def counted(kubectl: Kubectl, *names: str) -> dict[str, int]:
    return {name: ticks(kubectl, name)[-1] for name in names}
