"""Runs ``gauge`` (images/testguest/gauge.c) in a guest and in a container."""

from __future__ import annotations

import argparse
import json
import re
import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.cluster.kube import Console, Kubectl, console
from tests.cluster.manifests import GUEST_IMAGE
from tests.testbed import addons
from tests.testbed import kubectl as testbed_kubectl

START_SECONDS: Final = 300
PROMPT: Final = "GUEST-READY"
MIB: Final = 1 << 20
_SAID: Final = re.compile(r"gauge operations=(\d+) bytes=(\d+) microseconds=(\d+)")


class NotMeasured(Exception):
    """``gauge`` printed no figures; the message has its output."""


@dataclass(frozen=True)
class Reading:
    """Figures of one run of ``gauge``."""

    operations: int
    bytes: int
    seconds: float

    @property
    def mib_per_second(self) -> float:
        """Return the MiB moved per second."""
        return self.bytes / MIB / self.seconds

    @property
    def per_second(self) -> float:
        """Return operations, or connections, per second."""
        return self.operations / self.seconds


def reading(said: str) -> Reading:
    found = _SAID.search(said)
    if found is None or not int(found[3]):
        raise NotMeasured(f"gauge said: {said.strip()[-500:] or 'nothing'}")
    return Reading(int(found[1]), int(found[2]), int(found[3]) / 1e6)


Run = Callable[[str, float], Reading]


def in_guest(guest: Console) -> Run:
    return lambda words, seconds: reading(guest.run(f"gauge {words} 2>&1", timeout=seconds))


def in_pod(kubectl: Kubectl, pod: str) -> Run:
    def run(words: str, seconds: float) -> Reading:
        done = kubectl.try_run("exec", pod, "--", "/bin/gauge", *words.split(), timeout=seconds)
        return reading(done.stdout + done.stderr)

    return run


def a_pod(name: str, *command: str, node: str = "", claim: str = "") -> dict[str, Any]:
    """Return a pod that runs ``command`` in ``gauge``'s image, with ``claim``, if given, mounted at ``/claim``."""
    container: dict[str, Any] = {
        "name": "main",
        "image": GUEST_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": list(command),
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        # The user of launcher pods: QEMU must be able to write its files.
        "securityContext": {"runAsNonRoot": True, "runAsUser": 107, "runAsGroup": 107, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
    }
    if claim:
        container["volumeMounts"] = [{"name": "claim", "mountPath": "/claim"}]
        spec["volumes"] = [{"name": "claim", "persistentVolumeClaim": {"claimName": claim}}]
    if node:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def nodes(kubectl: Kubectl) -> list[str]:
    found = kubectl.json("get", "nodes")["items"]
    return sorted(each["metadata"]["name"] for each in found if not each["spec"].get("unschedulable"))


@contextmanager
def started(kubectl: Kubectl, manifest: dict[str, Any], said: str = PROMPT) -> Iterator[dict[str, Any]]:
    name = manifest["metadata"]["name"]
    kubectl.create(manifest)
    kubectl("wait", "vm", name, "--for=condition=Ready", f"--timeout={START_SECONDS}s", timeout=START_SECONDS + 10)
    with console(kubectl, name) as guest:
        guest.expect(said, timeout=START_SECONDS)
    yield kubectl.json("get", "vm", name)
    kubectl("delete", "vm", name, "--timeout=180s", timeout=190)


def acceleration(kubectl: Kubectl, vm: str) -> str:
    return "kvm" if kubectl.json("get", "vm", vm)["status"]["domain"]["type"] == "kvm" else "emulation"


def median(values: list[float], digits: int = 1) -> float:
    return round(statistics.median(values), digits)


def ratio(value: float, beside: float) -> float | None:
    return round(value / beside, 3) if beside else None


@contextmanager
def namespace(kubectl: Kubectl) -> Iterator[None]:
    kubectl("create", "namespace", kubectl.namespace)
    try:
        kubectl("label", "namespace", kubectl.namespace, "pod-security.kubernetes.io/enforce=restricted")
        yield
    finally:
        kubectl("delete", "namespace", kubectl.namespace, "--timeout=300s", timeout=310)
        if testbed_kubectl.is_own_cluster():
            addons.recycle_shared_volumes()


def parser(description: str, name: str) -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=description)
    found.add_argument("--kubeconfig", required=True, help="kubeconfig of the test cluster, with the chart installed")
    found.add_argument("--namespace", default=f"bench-{name}", help=f"namespace to make and remove (default bench-{name})")
    found.add_argument("--output", type=Path, default=Path(f"build/bench/{name}.json"), help="where the JSON goes")
    return found


def write(output: Path, figures: Mapping[str, Any]) -> None:
    text = json.dumps(figures, indent=1)
    print(text)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(text + "\n")
