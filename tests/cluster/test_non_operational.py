from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from apiserver.apis.meta import times
from apiserver.apis.meta.objects import Object, condition
from apiserver.apis.virt.lifecycle import failed_starts
from apiserver.apis.virt.places import node_states
from controller.reconcilers.non_operational import marking_plan
from tests.cluster import losses, processes
from tests.cluster.kube import Kubectl, eventually
from tests.cluster.manifests import tiny_vm
from tests.cluster.test_node_shutdown import cordoned, runs_on
from tests.testbed import kubectl as testbed_kubectl
from tests.testbed import layout, release

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not testbed_kubectl.is_own_cluster(), reason="processes are ended in the process table of this machine"),
]
NO_CONDITION = f'{{"status": {{"conditions": [{{"type": "{node_states.NON_OPERATIONAL_CONDITION}", "$patch": "delete"}}]}}}}'


@pytest.fixture
def tainted(system: Kubectl) -> Iterator[layout.Node]:
    """Return the node that virt-controller may taint, and afterwards remove what it wrote."""
    node, _ = losses.other_than_etcds(system)
    release.install("nonOperationalNodes.taint=NoSchedule")
    try:
        yield node
    finally:
        release.install()
        system.try_run("taint", "node", node.name, f"{node_states.NON_OPERATIONAL_TAINT}-")
        system("patch", "node", node.name, "--subresource=status", "--patch", NO_CONDITION)


def is_told(status: str, reason: str, *effects: str) -> Callable[[Object], bool]:
    def check(node: Object) -> bool:
        told = condition(node["status"]["conditions"], node_states.NON_OPERATIONAL_CONDITION) or {}
        return (told.get("status"), told.get("reason"), marking_plan.effects_of(node)) == (status, reason, [*effects])

    return check


def fail_first(system: Kubectl, other: str, machines: list[tuple[Kubectl, str]]) -> None:
    """Start machines, on a node other than ``other``, and end their pods before the guests run."""
    with cordoned(system, other):
        for within, name in machines:
            within.api.create(tiny_vm(name))
        started = [within.api.until("vm", name, lambda vm: vm["status"]["podName"], timeout=30, what="a pod") for within, name in machines]
        pods = [
            within.api.until("pod", vm["status"]["podName"], lambda pod: pod["spec"]["nodeName"], timeout=30, what="its node")
            for (within, _), vm in zip(machines, started, strict=True)
        ]
    left = list(pods)

    def end_those_that_launch() -> bool:
        for pod in (each for each in pods if each in left and any("launcher" in words for words in processes.of_pod(each).values())):
            processes.kill(pod)
            left.remove(pod)
        return not left

    eventually(end_those_that_launch, timeout=60, what="the end of all pods", interval=0.1)


def test_a_node_where_starts_fail_is_tainted_until_its_trial(
    kubectl: Kubectl, make_namespace: Callable[[str], Kubectl], system: Kubectl, testguest: None, tainted: layout.Node
) -> None:
    _, other = losses.other_than_etcds(system)
    machines = [(kubectl, "one"), (kubectl, "two"), (make_namespace("other"), "three")]
    fail_first(system, other, machines)
    for within, name in machines:
        runs_on(within, name, other)
    system.api.until("node", tainted.name, is_told("True", marking_plan.FAILED, "NoSchedule"), timeout=60, what="condition and taint")
    (line,) = (each for each in kubectl("virt", "nodes").splitlines() if each.startswith(f"{tainted.name} "))
    assert line.split()[1] == "NonOperational"
    kubectl.api.create(tiny_vm("new"))
    runs_on(kubectl, "new", other)
    system.within("default").api.events("NonOperational", of=tainted.name, timeout=30)
    for within, name in machines:  # the pause is over
        attempts = within.api.get("vm", name)["status"]["attempts"]
        attempts[0]["endTime"] = times.to_rfc3339(times.parse(attempts[0]["endTime"]) - failed_starts.PAUSE - timedelta(seconds=10))
        within.api.patch("vm", name, {"status": {"attempts": attempts}}, subresource="status")
    system.api.until("node", tainted.name, is_told("False", marking_plan.TRIAL), timeout=60, what="the trial")
    with cordoned(system, other):
        kubectl.api.create(tiny_vm("trial"))
        runs_on(kubectl, "trial", tainted.name)
    system.api.until("node", tainted.name, is_told("False", marking_plan.OPERATIONAL), timeout=60, what="the end of the trial")
