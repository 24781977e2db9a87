from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import pytest

from apiserver.apis.meta import errors, objects
from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from tests import utmp
from tests.cluster.api import in_phase, is_true
from tests.cluster.kube import Kubectl, console, eventually
from tests.cluster.manifests import linux_vm
from tests.cluster.test_stream_rights import bind

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420)]

VM: Final = "talkative"


@pytest.fixture(scope="module")
def machine(kubectl: Kubectl, testguest: None) -> Kubectl:
    del testguest
    kubectl.api.apply(linux_vm(VM))
    bind(kubectl, "viewer", "ClusterRole", "view")
    kubectl.api.until("vm", VM, is_true("AgentConnected"), timeout=150, what=f"vm {VM} is AgentConnected")
    return kubectl


def path(kubectl: Kubectl, name: str = VM) -> str:
    vm = kubectl.api.get("vm", name)
    return VIRTUAL_MACHINES.path(objects.namespace_of(vm), name, "guestinfo")


def guestinfo(look: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    def told() -> dict[str, Any] | None:
        found = look()
        return found if {"hostname", "users", "interfaces"} <= found.keys() else None

    found: dict[str, Any] = eventually(told, timeout=60, what="the guest's name, users and interfaces")
    return found


def read(kubectl: Kubectl, user: str = "") -> dict[str, Any]:
    found: dict[str, Any] = kubectl.api.request("GET", path(kubectl), headers={"Impersonate-User": user} if user else None)
    return found


def refusal(kubectl: Kubectl) -> str:
    try:
        read(kubectl)
    except errors.StatusError as error:
        return str(error)
    return ""


def status(kubectl: Kubectl) -> dict[str, Any]:
    return dict(kubectl.api.get("vm", VM)["status"])


def test_status_has_the_guests_facts_and_our_addresses(machine: Kubectl) -> None:
    vm = machine.api.until("vm", VM, lambda vm: vm["status"]["guest"]["hostname"], timeout=90, what="status.guest")
    found = vm["status"]

    assert found["guest"]["hostname"] == "testguest"
    assert found["guest"]["agent"]["connected"] is True
    assert found["guest"]["agent"]["version"]
    assert found["guest"]["os"]["kernelRelease"]
    assert found["interfaces"][0]["ipAddress"] == found["podIP"]
    assert [each["name"] for each in found["guest"].get("interfaces") or ()] in ([], [found["interfaces"][0]["name"]])


def test_viewer_reads_the_guest_info(machine: Kubectl) -> None:
    with console(machine, VM) as guest:
        guest.expect("GUEST-READY", timeout=120)
        guest.run(utmp.login("alice", 1_767_225_600))
    info = guestinfo(lambda: read(machine, "viewer"))

    assert (info["kind"], info["metadata"]["name"], info["hostname"]) == ("VirtualMachineGuestInfo", VM, "testguest")
    assert info["agent"]["version"]
    assert info["users"] == [{"userName": "alice", "loginTime": "2026-01-01T00:00:00Z"}]
    told = {*info, *(each["field"] for each in info.get("unavailable") or ())}
    assert {"os", "timezone", "interfaces", "applications"} <= told
    assert any(each["mac"] == status(machine)["interfaces"][0]["mac"] for each in info["interfaces"])
    (reason,) = [each["reason"] for each in info["unavailable"] if each["field"] == "applications"]  # busybox has no packages
    assert reason
    eventually(
        lambda: "Host name:          testguest" in machine("virt", "guestinfo", VM, "--as", "viewer"), timeout=60, what="the guest's name"
    )
    assert guestinfo(lambda: json.loads(machine("virt", "guestinfo", VM, "-o", "json")))["hostname"] == "testguest"


def test_guest_info_of_another_namespace_is_forbidden(machine: Kubectl, make_namespace: Callable[[str], Kubectl]) -> None:
    elsewhere = make_namespace("guestinfo-elsewhere")
    bind(elsewhere, "neighbour", "ClusterRole", "admin")

    with pytest.raises(
        errors.Forbidden, match=r'User "neighbour" cannot get resource "virtualmachines/guestinfo" in API group "kubevirt.io"'
    ):
        read(machine, "neighbour")


def test_discovery_and_its_schema_have_it(machine: Kubectl) -> None:
    listed = machine.api.request("GET", "/apis/kubevirt.io/v1alpha1")["resources"]
    (found,) = [each for each in listed if each["name"] == "virtualmachines/guestinfo"]
    assert (found["kind"], found["verbs"]) == ("VirtualMachineGuestInfo", ["get"])


def test_agent_runs_probes_and_says_why_it_does_not_freeze(machine: Kubectl) -> None:
    freeze = machine.try_run("virt", "freeze", VM)
    assert (freeze.returncode, "the guest agent found nothing that it can freeze" in freeze.stderr) == (1, True), freeze
    for command, ready in (("false", "False"), ("true", "True")):
        probe = {"exec": {"command": [command]}, "periodSeconds": 1, "timeoutSeconds": 10, "failureThreshold": 1}
        machine.api.patch("vm", VM, {"spec": {"readinessProbe": probe}})
        machine.api.until("vm", VM, is_true("Ready", ready), timeout=90, what=f"Ready is {ready}")
    machine.api.patch("vm", VM, {"spec": {"readinessProbe": None}})


def test_an_agent_that_hangs_and_one_that_is_stopped_are_told(machine: Kubectl) -> None:
    with console(machine, VM) as guest:
        guest.expect("GUEST-READY", timeout=120)
        guest.run("kill -STOP $(cat /run/qemu-ga.pid)")
        assert "talkative" in eventually(lambda: refusal(machine), timeout=60, what="a silent agent")
        machine.api.verb(VM, "pause")
        machine.api.until("vm", VM, is_true("Paused"), timeout=60, what=f"vm {VM} is Paused")
        machine.api.verb(VM, "unpause")
        machine.api.ready("vm", VM, timeout=60)
        guest.run("kill -CONT $(cat /run/qemu-ga.pid); kill $(cat /run/qemu-ga.pid)")
    machine.api.until("vm", VM, is_true("AgentConnected", "False"), timeout=180, what=f"vm {VM} is AgentConnected")

    assert "no guest agent is connected" in refusal(machine)
    assert status(machine)["guest"]["hostname"] == "testguest"


def test_a_machine_that_is_off_has_nothing_to_tell(machine: Kubectl) -> None:
    machine.api.verb(VM, "stop")
    machine.api.until("vm", VM, in_phase("Stopped"), timeout=120, what=f"vm {VM} is Stopped")

    assert "it is not running (phase Stopped)" in refusal(machine)
    assert "guest" not in status(machine)
    assert not [each for each in status(machine)["conditions"] if each["type"] == "AgentConnected"]
