from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from apiserver.apis.meta.objects import controller_of, name_of
from tests.cluster import processes
from tests.cluster.guests import is_above, ticks
from tests.cluster.kube import Kubectl, eventually
from tests.cluster.test_bad_days import await_recovery, counting, goes_on, kill_all, loses_no_write
from tests.cluster.test_replica_sets import KINDS, Sets, names
from tests.testbed import controlplane
from tests.testbed import kubectl as testbed_kubectl
from tests.testbed import processes as testbed_processes

__all__ = ["counting"]

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


@pytest.mark.parametrize("component", ["virt-api", "virt-controller"])
def test_the_guest_goes_on_and_its_console_comes_back(kubectl: Kubectl, system: Kubectl, counting: dict[str, Any], component: str) -> None:
    goes_on(kubectl, system, counting, component)


def test_no_acknowledged_write_is_lost(kubectl: Kubectl, system: Kubectl) -> None:
    loses_no_write(kubectl, system, "virt-api")


def test_a_guest_survives_the_death_of_its_libvirtd(kubectl: Kubectl, counting: dict[str, Any]) -> None:
    pod = kubectl.api.get("pod", counting["status"]["podName"])
    before = ticks(kubectl, "counting")[-1]

    processes.kill(pod, containing="libvirtd")

    eventually(lambda: any("libvirtd" in each for each in processes.of_pod(pod).values()), timeout=90, what="another libvirtd")
    eventually(lambda: is_above(kubectl, "counting", before + 3), timeout=60, what="the counter")


@contextmanager
def without_controller(sets: Sets, system: Kubectl) -> Iterator[None]:
    """End the process that creates the set's replicas; start it again afterwards."""
    if sets.kind.kind == "ReplicaSet":
        testbed_processes.end(["kube-controller-manager"])
        try:
            yield
        finally:
            controlplane.up()
    else:
        killed = kill_all(system, "virt-controller")
        yield
        await_recovery(system, "virt-controller", killed)


def misses_watch_events(sets: Sets, system: Kubectl) -> Any:
    """Delete a replica, relabel one and create a matching one without the controller; return what the set has afterwards."""
    sets.create(3)
    deleted, relabelled, kept = map(name_of, sets.settled(3))
    with without_controller(sets, system):
        sets.kubectl.api.delete(sets.kind.replica, deleted)
        sets.label(relabelled, "debug")
        sets.create_one("matching")
    released = sets.kubectl.api.until(
        sets.kind.replica, relabelled, lambda each: controller_of(each) is None, timeout=120, what="its release"
    )
    found = names(sets.settled(3))
    sets.clean()
    return kept in found, deleted in found, relabelled in found, "matching" in found, len(found), controller_of(released)


@pytest.mark.skipif(not testbed_kubectl.is_own_cluster(), reason="ends kube-controller-manager, a process of this machine")
def test_a_set_counts_right_after_missed_watch_events(make_namespace: Callable[[str], Kubectl], system: Kubectl, testguest: None) -> None:
    alone = make_namespace("sets")
    theirs, ours = (misses_watch_events(Sets(alone, kind), system) for kind in KINDS)
    assert ours == theirs
