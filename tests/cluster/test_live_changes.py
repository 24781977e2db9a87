"""This Linux takes emulated processors at its next boot; tests/host/launcher/test_live_changes.py has one that takes them at once."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.cluster.api import condition_of, has_taken_edits, is_true
from tests.cluster.kube import Kubectl, console
from tests.cluster.manifests import linux_vm, migration, with_disks
from tests.cluster.test_disks_and_cards import seconds, words
from tests.cluster.test_migrations import final_phase, other_node

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

VM: Final = "live"
READ: Final = "dd if=/dev/vda of=/dev/null bs=4k count=40 iflag=direct"
SCRATCH: Final[dict[str, Any]] = {"name": "scratch", "type": "EmptyDisk", "source": {"size": "8Mi"}}
SLOW: Final = {"ioTune": {"totalIopsSec": 10}}


def edit(kubectl: Kubectl, *, disk: dict[str, Any], state: str, sockets: int = 1) -> None:
    devices = {"disks": [{**SCRATCH, **disk}], "interfaces": [{"name": "default", "state": state}]}
    kubectl.api.patch("vm", VM, {"spec": {"domain": {"cpu": {"sockets": sockets}, "devices": devices}}})


def taken(kubectl: Kubectl) -> dict[str, Any]:
    vm = kubectl.api.until("vm", VM, has_taken_edits, timeout=60, what="the guest takes the edit")
    assert "changes" not in vm["status"]
    assert not condition_of(vm, "RestartRequired")
    return vm


def disk_and_link(kubectl: Kubectl) -> tuple[bool, str]:
    with console(kubectl, VM) as guest:
        guest.type("\n")
        link = words(guest, "cat /sys/class/net/eth0/carrier", 1)[0]
        return seconds(guest, READ) > 2, link


def processors_after_a_reset(kubectl: Kubectl) -> str:
    with console(kubectl, VM) as guest:
        guest.type("\n")
        guest.run("true")
        kubectl("virt", "reset", VM, "--wait")
        guest.expect("GUEST-READY", timeout=180)
        return words(guest, "grep -c ^processor /proc/cpuinfo", 1)[0]


def test_running_guest_takes_edits_and_keeps_them(kubectl: Kubectl, testguest: None) -> None:
    manifest = with_disks(linux_vm(VM), SCRATCH)
    manifest["spec"]["domain"]["cpu"] = {"sockets": 1, "maxSockets": 2}
    manifest["spec"]["domain"]["devices"]["interfaces"] = [{"name": "default"}]
    kubectl.api.apply(manifest)
    vm = kubectl.api.ready("vm", VM, timeout=120)
    with console(kubectl, VM) as guest:
        guest.expect("GUEST-READY", timeout=180)
    assert disk_and_link(kubectl) == (False, "1")

    edit(kubectl, disk=SLOW, state="down")
    assert taken(kubectl)["status"]["podUID"] == vm["status"]["podUID"]
    assert disk_and_link(kubectl) == (True, "0")
    assert len(kubectl.api.events("HardwareChanged", of=VM, timeout=10)) == 2

    edit(kubectl, disk=SLOW, state="down", sockets=2)
    vm = taken(kubectl)
    made = kubectl.api.create(migration(VM, node=other_node(kubectl, vm["status"]["nodeName"])))
    assert final_phase(kubectl, made["metadata"]["name"]) == "Succeeded"
    assert disk_and_link(kubectl) == (True, "0")
    edit(kubectl, disk={}, state="up", sockets=2)
    taken(kubectl)
    assert disk_and_link(kubectl) == (False, "1")
    assert processors_after_a_reset(kubectl) == "2"

    edit(kubectl, disk={}, state="up", sockets=1)
    vm = kubectl.api.until("vm", VM, is_true("RestartRequired"), timeout=30, what="fewer processors need a restart")
    assert "spec.domain.cpu.sockets" in condition_of(vm, "RestartRequired")["message"]
