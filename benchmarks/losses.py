"""``make bench-losses``: seconds from a node's loss to the restart of its machine elsewhere, by step.

The board reports that the node is off as soon as the fence agent asks. Steps:

- ``unknown``: virt-controller finds the node unreachable
- ``fenced``: the agent's proof is written to the Node
- ``running``: virt-handler of another node reports the guest
- ``gone``: Kubernetes has deleted the pod, for which only volumes for one node at a time wait
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from apiserver.apis.virt.places import node_states
from benchmarks.start import Spread
from tests.cluster import losses
from tests.cluster.api import in_phase
from tests.cluster.kube import Kubectl
from tests.cluster.manifests import tiny_vm
from tests.cluster.test_node_shutdown import cordoned
from tests.fakes.board import Board
from tests.testbed import layout

STEPS: Final = ("unknown", "fenced", "running", "gone")
LIMIT_SECONDS: Final = 300
MACHINE: Final = "bench-loss"


def lose(kubectl: Kubectl, system: Kubectl, node: layout.Node, other: str) -> dict[str, float]:
    with cordoned(system, other):
        kubectl.api.create(tiny_vm(MACHINE))
        pod = kubectl.api.ready("vm", MACHINE, timeout=LIMIT_SECONDS)["status"]["podName"]
    pods = system.api.list("pods", field_selector=f"spec.nodeName={node.name}", label_selector="app.kubernetes.io/part-of=kubevirt")
    ours = [each for each in pods if "deletionTimestamp" not in each["metadata"]]  # a rollout's old pods may have no process left
    guest = kubectl.api.get("pod", pod)
    found = {}
    began = time.monotonic()
    with losses.without_kubelet(system, node, *ours, guest):
        kubectl.api.until("vm", MACHINE, in_phase("Unknown"), timeout=LIMIT_SECONDS, what="phase Unknown")
        found["unknown"] = time.monotonic() - began
        system.api.until("node", node.name, node_states.is_fenced, timeout=LIMIT_SECONDS, what="the taint")
        found["fenced"] = time.monotonic() - began
        kubectl.api.until(
            "vm",
            MACHINE,
            lambda vm: vm["status"]["phase"] == "Running" and vm["status"].get("nodeName") == other,
            timeout=LIMIT_SECONDS,
            what="the restart",
        )
        found["running"] = time.monotonic() - began
        kubectl.api.gone("pod", pod, timeout=LIMIT_SECONDS)
        found["gone"] = time.monotonic() - began
        kubectl.api.delete("vm", MACHINE)
        kubectl.api.gone("vm", MACHINE, timeout=LIMIT_SECONDS)
    return found


def measure(kubectl: Kubectl, system: Kubectl, count: int) -> list[dict[str, float]]:
    node, other = losses.other_than_etcds(system)
    taken = []
    with tempfile.TemporaryDirectory() as directory, losses.fence_agent(system, Path(directory), board := Board(), node.name):
        for number in range(count):
            board.power = "On"
            taken.append(lose(kubectl, system, node, other))
            print(f"  {number + 1}/{count}: {taken[-1]['running']:.1f} s to Running", file=sys.stderr)
    return taken


def report(taken: list[dict[str, float]]) -> dict[str, Any]:
    return {"losses": len(taken), "seconds": {step: asdict(Spread.of([each[step] for each in taken])) for step in STEPS}, "samples": taken}


def show(result: dict[str, Any]) -> None:
    print(f"{result['losses']} losses; seconds since the loss")
    print(f"{'step':12}{'p50':>8}{'p95':>8}{'max':>8}")
    for step, spread in result["seconds"].items():
        print(f"{step:12}{spread['p50']:8.1f}{spread['p95']:8.1f}{spread['max']:8.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure restarts after the loss of a node of the test cluster, with a fence agent.")
    parser.add_argument("--kubeconfig", required=True, help="kubeconfig of the test cluster, with the chart installed")
    parser.add_argument("--count", type=int, default=20, help="how many losses (default 20)")
    parser.add_argument("--more", action="store_true", help="add to the losses of the earlier JSON")
    parser.add_argument("--output", type=Path, default=Path("build/bench/losses.json"), help="where the JSON goes")
    arguments = parser.parse_args()
    known = json.loads(arguments.output.read_text())["samples"] if arguments.more and arguments.output.exists() else []
    kubectl = Kubectl(Path(arguments.kubeconfig), "bench-losses")
    kubectl("create", "namespace", kubectl.namespace)
    try:
        result = report([*known, *measure(kubectl, kubectl.within("kubevirt"), arguments.count)])
    finally:
        kubectl("delete", "namespace", kubectl.namespace, "--timeout=300s", timeout=310)
    show(result)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
