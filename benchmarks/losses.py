"""``make bench-losses``: seconds from a node's loss to the restart of its machine elsewhere, by step.

The board reports that the node is off as soon as the fence agent asks. Steps:

- ``unknown``: virt-controller finds the node unreachable
- ``fenced``: the agent's proof is written to the Node; or ``sealed``: virt-controller has sealed the Lease of the node's guardian
- ``running``: virt-handler of another node reports the guest
- ``gone``, only with the agent: Kubernetes has deleted the pod. Only volumes for one node at a time wait for that
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from apiserver.apis.meta.objects import Object, condition, dig
from apiserver.apis.virt import guards
from apiserver.apis.virt.lifecycle import conditions
from apiserver.apis.virt.places import names, node_states
from benchmarks.start import Spread
from tests.cluster import guardian_losses, losses
from tests.cluster.kube import Kubectl
from tests.cluster.manifests import tiny_vm
from tests.cluster.test_node_shutdown import cordoned
from tests.fakes.board import Board
from tests.testbed import layout

AGENT: Final = "agent"
GUARDIAN: Final = "guardian"
STEPS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {AGENT: ("unknown", "fenced", "running", "gone"), GUARDIAN: ("unknown", "sealed", "running")}
)
LIMIT_SECONDS: Final = 300
MACHINE: Final = "bench-loss"


@dataclass(frozen=True)
class Evidence:
    """The proof that the guest of the lost node is dead."""

    kind: str
    prepare: Callable[[Object], object]
    """Called with the machine's pod before the loss."""
    await_proof: Callable[[], object]


@contextmanager
def evidence_of(kind: str, system: Kubectl, node: layout.Node) -> Iterator[Evidence]:
    with tempfile.TemporaryDirectory() as directory:
        if kind == GUARDIAN:
            with guardian_losses.guardians(system, Path(directory)) as leases:
                yield Evidence(
                    kind,
                    lambda pod: guardian_losses.is_promised(leases, node.name, pod),
                    lambda: leases.api.until(
                        "lease", names.guardian_lease(node.name), guards.is_sealed, timeout=LIMIT_SECONDS, what="the seal"
                    ),
                )
        else:
            board = Board()
            with losses.fence_agent(system, Path(directory), board, node.name):
                yield Evidence(
                    kind,
                    lambda _: setattr(board, "power", "On"),
                    lambda: system.api.until("node", node.name, node_states.is_fenced, timeout=LIMIT_SECONDS, what="the taint"),
                )


def lose(kubectl: Kubectl, system: Kubectl, node: layout.Node, other: str, evidence: Evidence) -> dict[str, float]:
    with cordoned(system, other):
        kubectl.api.create(tiny_vm(MACHINE))
        pod = kubectl.api.ready("vm", MACHINE, timeout=LIMIT_SECONDS)["status"]["podName"]
    pods = system.api.list("pods", field_selector=f"spec.nodeName={node.name}", label_selector="app.kubernetes.io/part-of=kubevirt")
    ours = [each for each in pods if "deletionTimestamp" not in each["metadata"]]  # a rollout's old pods may have no process left
    guest = kubectl.api.get("pod", pod)
    evidence.prepare(guest)
    waits: dict[str, Callable[[], object]] = {
        "unknown": lambda: kubectl.api.until("vm", MACHINE, _is_lost, timeout=LIMIT_SECONDS, what="phase Unknown"),
        "fenced": evidence.await_proof,
        "sealed": evidence.await_proof,
        "running": lambda: kubectl.api.until(
            "vm",
            MACHINE,
            lambda vm: vm["status"]["phase"] == "Running" and vm["status"].get("nodeName") == other,
            timeout=LIMIT_SECONDS,
            what="the restart",
        ),
        "gone": lambda: kubectl.api.gone("pod", pod, timeout=LIMIT_SECONDS),
    }
    found = {}
    began = time.monotonic()
    with losses.without_kubelet(system, node, *ours, guest):
        for step in STEPS[evidence.kind]:
            waits[step]()
            found[step] = time.monotonic() - began
    kubectl.api.delete("vm", MACHINE)
    kubectl.api.gone("vm", MACHINE, timeout=LIMIT_SECONDS)
    return found


def _is_lost(vm: Object) -> bool:
    return dig(vm, "status", "phase") == "Unknown" or condition(dig(vm, "status", "conditions"), conditions.NODE_LOST) is not None


def measure(kubectl: Kubectl, system: Kubectl, count: int, kind: str) -> list[dict[str, float]]:
    node, other = losses.other_than_etcds(system)
    taken = []
    with evidence_of(kind, system, node) as evidence:
        for number in range(count):
            taken.append(lose(kubectl, system, node, other, evidence))
            print(f"  {number + 1}/{count}: {taken[-1]['running']:.1f} s to Running", file=sys.stderr)
    return taken


def report(taken: list[dict[str, float]], kind: str) -> dict[str, Any]:
    return {
        "evidence": kind,
        "losses": len(taken),
        "seconds": {step: asdict(Spread.of([each[step] for each in taken])) for step in STEPS[kind]},
        "samples": taken,
    }


def show(result: dict[str, Any]) -> None:
    print(f"{result['losses']} losses, evidence: {result['evidence']}; seconds since the loss")
    print(f"{'step':12}{'p50':>8}{'p95':>8}{'max':>8}")
    for step, spread in result["seconds"].items():
        print(f"{step:12}{spread['p50']:8.1f}{spread['p95']:8.1f}{spread['max']:8.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure restarts after the loss of a node of the test cluster.")
    parser.add_argument("--kubeconfig", required=True, help="kubeconfig of the test cluster, with the chart installed")
    parser.add_argument("--evidence", choices=tuple(STEPS), default=AGENT, help="what proves that the guest is dead (default agent)")
    parser.add_argument("--count", type=int, default=20, help="how many losses (default 20)")
    parser.add_argument("--more", action="store_true", help="add to the losses of the earlier JSON")
    parser.add_argument("--output", type=Path, help="where the JSON goes (default build/bench/losses.json, or losses-guardian.json)")
    arguments = parser.parse_args()
    kind: str = arguments.evidence
    output: Path = arguments.output or Path(f"build/bench/losses{'' if kind == AGENT else f'-{kind}'}.json")
    known = json.loads(output.read_text())["samples"] if arguments.more and output.exists() else []
    kubectl = Kubectl(Path(arguments.kubeconfig), "bench-losses")
    kubectl("create", "namespace", kubectl.namespace)
    try:
        result = report([*known, *measure(kubectl, kubectl.within("kubevirt"), arguments.count, kind)], kind)
    finally:
        kubectl("delete", "namespace", kubectl.namespace, "--timeout=300s", timeout=310)
    show(result)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
