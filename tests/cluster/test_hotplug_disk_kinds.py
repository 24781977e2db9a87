from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.meta.objects import Object
from tests.cluster import test_claims
from tests.cluster.api import is_true
from tests.cluster.hot_plug import (
    DATA,
    ROOT,
    VM,
    cleared,
    edit,
    has_disk,
    no_attachment_pod,
    reads_it_elsewhere_and_lets_go,
    sees_disk,
    until_disks,
)
from tests.cluster.kube import Kubectl, console
from tests.cluster.manifests import GUEST_IMAGE, linux_vm, migration, shared_claim, with_disks
from tests.cluster.test_migrations import final_phase, other_node
from tests.damage import never_again
from tests.testbed import kubectl as testbed_kubectl

__all__ = ["cleared"]

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not testbed_kubectl.is_own_cluster(), reason="needs a device and the StorageClass shared of the test bed"),
]
TRAY = {"name": "tray", "device": "cdrom", "target": {"bus": "scsi"}}
SPACE: dict[str, Any] = {"name": "space", "type": "EmptyDisk", "source": {"size": "8Mi"}}
UNTIL_DISK = "n=0; until test -e /dev/{} -o $n -gt 30; do sleep 1; n=$((n+1)); done"
COPY: dict[str, Any] = {
    "name": "copy",
    "type": "Image",
    "source": {"reference": GUEST_IMAGE, "path": "boot/vmlinux", "sizeLimit": "128Mi"},
}


@pytest.mark.sample(3, "kinds of hot-plugged disks")
def test_disks_with_overlays_come_move_and_are_blank_again(kubectl: Kubectl, testguest: None) -> None:
    del testguest
    kubectl.api.apply(with_disks(linux_vm(VM), ROOT))
    vm = kubectl.api.ready("vm", VM, timeout=240)
    pod, node = vm["status"]["podUID"], vm["status"]["nodeName"]
    with console(kubectl, VM) as guest:
        guest.expect("GUEST-READY", timeout=120)
        edit(kubectl, ROOT, SPACE, COPY)
        vm = until_disks(kubectl, "scratch", "space", "copy")
        assert (vm["status"]["podUID"], is_true("RestartRequired")(vm)) == (pod, False)
        assert [(each["name"], each["phase"]) for each in vm["status"]["volumeStatus"]] == [
            ("space", "AttachedToNode"),
            ("copy", "AttachedToNode"),
        ]
        guest.run(UNTIL_DISK.format("vdc"))
        target = {each["name"]: each["target"] for each in vm["status"]["devices"] if each["kind"] == "disk"}
        assert "ELF" in guest.run(f"head -c 4 /dev/{target['copy']}")
        for each in ("vdb", "vdc"):
            guest.run(f"echo of-the-guest | dd of=/dev/{each} conv=fsync")

    made = kubectl.api.create(migration(VM, node=other_node(kubectl, node)))
    assert final_phase(kubectl, made["metadata"]["name"]) == "Succeeded"
    kubectl.api.until("vm", VM, lambda each: "volumeStatus" not in each["status"], timeout=60, what="no volume")
    no_attachment_pod(kubectl)
    with console(kubectl, VM) as guest:
        for each in ("vdb", "vdc"):
            with never_again("a lost write"):
                assert "of-the-guest" in guest.run(f"head -c 12 /dev/{each}")
        edit(kubectl, ROOT)
        until_disks(kubectl, "scratch")
        assert not has_disk(guest)
        edit(kubectl, ROOT, SPACE)
        until_disks(kubectl, "scratch", "space")
        guest.run(UNTIL_DISK.format("vdb"))
        with never_again("wrong bytes"):
            assert "of-the-guest" not in guest.run("head -c 12 /dev/vdb")


@pytest.mark.sample(3, "kinds of hot-plugged disks")
def test_block_claim_is_attached_and_detached_here_and_there(kubectl: Kubectl, testguest: None, tmp_path: Path) -> None:
    del testguest
    with test_claims.device(kubectl, tmp_path) as claim:
        disk = {**DATA, "source": {"name": claim}}
        kubectl.api.apply(with_disks(linux_vm(VM), ROOT))
        vm = kubectl.api.ready("vm", VM, timeout=240)
        pod, node = vm["status"]["podUID"], vm["status"]["nodeName"]
        with console(kubectl, VM) as guest:
            guest.expect("GUEST-READY", timeout=120)
            edit(kubectl, ROOT, disk)
            vm = until_disks(kubectl, "scratch", "data")
            assert (vm["status"]["podUID"], is_true("RestartRequired")(vm)) == (pod, False)
            sees_disk(guest)
            guest.run("echo of-the-guest | dd of=/dev/vdb conv=fsync")
            edit(kubectl, ROOT)
            until_disks(kubectl, "scratch")
            assert not has_disk(guest)
            edit(kubectl, ROOT, disk)
            until_disks(kubectl, "scratch", "data")
            sees_disk(guest)

        reads_it_elsewhere_and_lets_go(kubectl, node)
        with never_again("a lost write"):
            assert (tmp_path / "device.img").read_bytes().startswith(b"of-the-guest")
        kubectl.api.delete("vm", VM, timeout=120)


@pytest.mark.sample(3, "kinds of hot-plugged disks")
def test_waiting_disk_is_created_grows_and_becomes_a_medium(kubectl: Kubectl, testguest: None) -> None:
    del testguest
    kubectl.api.apply(shared_claim("data"), with_disks(linux_vm(VM), ROOT, TRAY))
    node = kubectl.api.ready("vm", VM, timeout=240)["status"]["nodeName"]

    def has_failed(vm: Object) -> bool:
        changes = vm["status"].get("changes") or []
        return [(each["path"], each["state"]) for each in changes] == [("spec.domain.devices.disks[data]", "Failed")]

    def data(**create: str) -> dict[str, Any]:
        return {**DATA, "source": {"name": "data", **({"create": create} if create else {})}}

    with console(kubectl, VM) as guest:
        guest.expect("GUEST-READY", timeout=120)
        edit(kubectl, ROOT, TRAY, data())
        kubectl.api.until("vm", VM, has_failed, timeout=60, what="the disk without an image has failed")
        edit(kubectl, ROOT, TRAY, data(size="16Mi"))
        until_disks(kubectl, "scratch", "data")
        sees_disk(guest)
        edit(kubectl, ROOT, TRAY, data(size="24Mi"))
        until_disks(kubectl, "scratch", "data")
        assert str(24 << 11) in guest.run("cat /sys/block/vdb/size").split()
        guest.run("echo of-the-guest | dd of=/dev/vdb conv=fsync")
        assert "No medium found" in guest.run("head -c 12 /dev/sr0")
        edit(kubectl, ROOT, {**TRAY, "type": "Image", "source": {"reference": GUEST_IMAGE, "path": "boot/vmlinux"}}, data(size="24Mi"))
        until_disks(kubectl, "scratch", "tray", "data")
        assert "ELF" in guest.run("head -c 4 /dev/sr0 | tr -d '\\177'")

        edit(kubectl, ROOT, {**TRAY, "type": "PersistentVolumeClaim", "source": {"name": "data"}})
        vm = until_disks(kubectl, "scratch", "tray")
        with never_again("a lost write"):
            assert "of-the-guest" in guest.run("head -c 12 /dev/sr0")
        assert not is_true("RestartRequired")(vm)

    made = kubectl.api.create(migration(VM, node=other_node(kubectl, node)))
    assert final_phase(kubectl, made["metadata"]["name"]) == "Succeeded"
    with console(kubectl, VM) as guest:
        guest.run("exec 3</dev/sr0")
        with never_again("a lost write"):
            assert "of-the-guest" in guest.run("head -c 12 <&3")
        edit(kubectl, ROOT, TRAY)
        vm = kubectl.api.until("vm", VM, lambda vm: vm["status"].get("changes"), timeout=60, what="a locked tray")
        assert [(each["state"], each["message"]) for each in vm["status"]["changes"]] == [
            ("Failed", "the guest locks the tray of drive 'tray': unmount its medium in the guest")
        ]
        guest.run("exec 3<&-")
        until_disks(kubectl, "scratch")
        assert "No medium found" in guest.run("head -c 12 /dev/sr0")
