"""Migrations that do not converge end as their MigrationPolicy says, on real parts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.cluster.kube import Kubectl, console
from tests.cluster.manifests import migration, tiny_vm
from tests.cluster.test_migrations import COUNTER, final_phase, last_tick, running

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420)]

WRITER = "(while :; do dd if=/dev/urandom of=/x bs=1M count=24 conv=notrunc 2>/dev/null; done) &\n"
"""Writes memory faster than it is sent at 4 MiB a second."""


@contextmanager
def a_policy(kubectl: Kubectl, name: str, **spec: Any) -> Iterator[None]:
    """Have a policy for the machine of its name."""
    selectors = {"virtualMachineSelector": {"matchLabels": {"policy": name}}}
    kubectl.apply(
        {
            "apiVersion": "kubevirt.io/v1alpha1",
            "kind": "MigrationPolicy",
            "metadata": {"name": name},
            "spec": {"selectors": selectors, **spec},
        }
    )
    try:
        yield
    finally:
        kubectl("delete", "migrationpolicy", name, "--timeout=30s", timeout=40)


def writing(kubectl: Kubectl, name: str) -> dict[str, Any]:
    """Return a machine, chosen by the policy of its name, whose guest counts, and writes memory without end."""
    machine = tiny_vm(name)
    machine["metadata"]["labels"] = {"policy": name}
    vm = running(kubectl, machine)
    with console(kubectl, name) as guest:
        guest.expect("GUEST-READY", timeout=60)
        guest.type(WRITER)
        guest.type(COUNTER)
        guest.expect(r"tick (\d+)", timeout=30)
    return vm


def ticks_on(kubectl: Kubectl, name: str) -> None:
    with console(kubectl, name) as guest:
        first = last_tick(guest.expect(r"tick (\d+)\r?\n", timeout=60).group(0))
        guest.expect(rf"tick {first + 2}\r?\n", timeout=60)


def test_a_guest_that_never_stops_writing_stays_when_its_time_is_over(kubectl: Kubectl) -> None:
    with a_policy(kubectl, "impatient", bandwidth="4Mi", completionTimeoutPerGiB=30):
        vm = writing(kubectl, "impatient")
        made = kubectl.create(migration("impatient"))["metadata"]["name"]
        assert final_phase(kubectl, made) == "Failed"
    status = kubectl.json("get", "migration", made)["status"]
    assert status["policy"] == "impatient"
    assert status["options"]["completionTimeoutSeconds"] == 30
    assert "timed out: the guest did not arrive within 30 s (completionTimeoutPerGiB of MigrationPolicy impatient)" in status["message"]
    after = kubectl.json("get", "vm", "impatient")["status"]
    assert (after["podName"], after["phase"]) == (vm["status"]["podName"], "Running")
    ticks_on(kubectl, "impatient")


def test_a_guest_that_never_stops_writing_arrives_where_it_may_be_paused(kubectl: Kubectl) -> None:
    with a_policy(kubectl, "pauses", bandwidth="4Mi", completionTimeoutPerGiB=50, allowPause=True):
        vm = writing(kubectl, "pauses")
        made = kubectl.create(migration("pauses"))["metadata"]["name"]
        assert final_phase(kubectl, made) == "Succeeded"
    after = kubectl.json("get", "vm", "pauses")["status"]
    assert after["podName"] != vm["status"]["podName"]
    ticks_on(kubectl, "pauses")


def test_several_connections_carry_a_guest(kubectl: Kubectl) -> None:
    with a_policy(kubectl, "parallel", parallelConnections=4, allowAutoConverge=True, maxDowntimeMilliseconds=800):
        machine = tiny_vm("parallel")
        machine["metadata"]["labels"] = {"policy": "parallel"}
        running(kubectl, machine)
        made = kubectl.create(migration("parallel"))["metadata"]["name"]
        assert final_phase(kubectl, made) == "Succeeded"


def test_post_copy_is_refused_with_the_reason(kubectl: Kubectl) -> None:
    refused = kubectl.try_run(
        "create",
        "-f",
        "-",
        stdin='{"apiVersion":"kubevirt.io/v1alpha1","kind":"MigrationPolicy","metadata":{"name":"p"},"spec":{"allowPostCopy":true}}',
    )
    assert refused.returncode != 0
    assert "spec.allowPostCopy" in refused.stderr
