from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.meta.objects import Object
from tests.cluster import test_claims, test_imports
from tests.cluster.api import has, is_true
from tests.cluster.kube import Console, Kubectl, console
from tests.cluster.manifests import GUEST_IMAGE, linux_vm, migration, shared_claim, with_disks
from tests.cluster.test_bad_days import await_recovery, kill_all
from tests.cluster.test_migrations import final_phase, other_node
from tests.testbed import kubectl as testbed_kubectl
from tests.testbed import layout

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not testbed_kubectl.is_own_cluster(), reason="looks at the files of a claim"),
]
VM = "plugged"
ROOT = {"name": "scratch", "type": "EmptyDisk", "source": {"size": "8Mi"}}
TRAY = {"name": "tray", "device": "cdrom", "target": {"bus": "scsi"}}
DATA: dict[str, Any] = {
    "name": "data",
    "type": "PersistentVolumeClaim",
    "source": {"name": "data", "create": {"size": "16Mi"}},
    "serial": "hotplugged",
}
SPACE: dict[str, Any] = {"name": "space", "type": "EmptyDisk", "source": {"size": "8Mi"}}
UNTIL_DISK = "n=0; until test -e /dev/{} -o $n -gt 30; do sleep 1; n=$((n+1)); done"
COPY: dict[str, Any] = {
    "name": "copy",
    "type": "Image",
    "source": {"reference": GUEST_IMAGE, "path": "boot/vmlinux", "sizeLimit": "128Mi"},
}


@pytest.fixture(autouse=True)
def cleared(kubectl: Kubectl) -> Iterator[None]:
    yield
    for kind, name in (("vm", VM), ("pvc", "data")):
        if kubectl.api.find(kind, name):
            kubectl.api.delete(kind, name)
            kubectl.api.gone(kind, name, timeout=120)


def edit(kubectl: Kubectl, *disks: dict[str, Any]) -> None:
    kubectl.api.patch("vm", VM, {"spec": {"domain": {"devices": {"disks": list(disks)}}}})


def names(vm: Object) -> list[str]:
    return [each["name"] for each in vm["status"].get("devices") or () if each["kind"] == "disk" and not each.get("empty")]


def until_disks(kubectl: Kubectl, *expected: str) -> Object:
    def check(vm: Object) -> bool:
        return names(vm) == list(expected) and "running" not in vm["status"]

    return kubectl.api.until("vm", VM, check, timeout=90, what=f"disks {expected}")


def attachment_pods(kubectl: Kubectl) -> list[str]:
    found = kubectl.api.list("pods", label_selector=f"vm.kubevirt.io/name={VM}")
    return [each["metadata"]["name"] for each in found if "-volume-" in each["metadata"]["name"]]


def no_attachment_pod(kubectl: Kubectl) -> None:
    kubectl.api.until_list(
        "pods", lambda found: not any("-volume-" in each["metadata"]["name"] for each in found), timeout=60, what="no attachment pod"
    )


def sees_disk(guest: Console) -> None:
    guest.run("n=0; while test ! -e /sys/block/vdb/serial -a $n -lt 30; do sleep 1; n=$((n+1)); done")
    assert "hotplugged" in guest.run("cat /sys/block/vdb/serial")


def has_disk(guest: Console) -> bool:
    return "vdb" in guest.run("ls /sys/block").split()


def test_claim_is_attached_moves_with_the_guest_and_is_detached(kubectl: Kubectl, system: Kubectl, testguest: None) -> None:
    del testguest
    kubectl.api.apply(shared_claim("data"), with_disks(linux_vm(VM), ROOT))
    vm = kubectl.api.ready("vm", VM, timeout=240)
    pod, node = vm["status"]["podUID"], vm["status"]["nodeName"]
    with console(kubectl, VM) as guest:
        guest.expect("GUEST-READY", timeout=120)
        edit(kubectl, ROOT, DATA)
        vm = until_disks(kubectl, "scratch", "data")
        assert vm["status"]["podUID"] == pod
        assert not is_true("RestartRequired")(vm)
        (entry,) = vm["status"]["volumeStatus"]
        assert (entry["name"], entry["phase"]) == ("data", "AttachedToNode")
        assert attachment_pods(kubectl) == [entry["hotplugVolume"]["attachPodName"]]
        kubectl.api.events("DiskAttached", of=VM, timeout=10)
        sees_disk(guest)
        guest.run("echo of-the-guest | dd of=/dev/vdb conv=fsync")
    await_recovery(system, "virt-handler", kill_all(system, "virt-handler"))

    made = kubectl.api.create(migration(VM, node=other_node(kubectl, node)))
    assert final_phase(kubectl, made["metadata"]["name"]) == "Succeeded"
    vm = kubectl.api.until("vm", VM, lambda each: "volumeStatus" not in each["status"], timeout=60, what="no volume")
    assert (vm["status"]["nodeName"] == node, names(vm)) == (False, ["scratch", "data"])
    no_attachment_pod(kubectl)
    with console(kubectl, VM) as guest:
        assert "of-the-guest" in guest.run("head -c 12 /dev/vdb")
        edit(kubectl, ROOT)
        until_disks(kubectl, "scratch")
        assert not has_disk(guest)

        edit(kubectl, ROOT, DATA)
        until_disks(kubectl, "scratch", "data")
        sees_disk(guest)
        assert "of-the-guest" in guest.run("head -c 12 /dev/vdb")
        killed = kill_all(system, "virt-handler")
        edit(kubectl, ROOT)
        await_recovery(system, "virt-handler", killed)
        until_disks(kubectl, "scratch")
        assert not has_disk(guest)
    kubectl.api.events("DiskDetached", of=VM, timeout=10)
    no_attachment_pod(kubectl)
    images = [each for each in layout.shared_volumes().rglob("disk.img") if each.read_bytes().startswith(b"of-the-guest")]
    assert len(images) == 1


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
            assert "of-the-guest" in guest.run(f"head -c 12 /dev/{each}")
        edit(kubectl, ROOT)
        until_disks(kubectl, "scratch")
        assert not has_disk(guest)
        edit(kubectl, ROOT, SPACE)
        until_disks(kubectl, "scratch", "space")
        guest.run(UNTIL_DISK.format("vdb"))
        assert "of-the-guest" not in guest.run("head -c 12 /dev/vdb")


def reads_it_elsewhere_and_lets_go(kubectl: Kubectl, node: str) -> None:
    made = kubectl.api.create(migration(VM, node=other_node(kubectl, node)))
    assert final_phase(kubectl, made["metadata"]["name"]) == "Succeeded"
    with console(kubectl, VM) as guest:
        assert "of-the-guest" in guest.run("head -c 12 /dev/vdb")
        edit(kubectl, ROOT)
        until_disks(kubectl, "scratch")
        assert not has_disk(guest)


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
        assert (tmp_path / "device.img").read_bytes().startswith(b"of-the-guest")
        kubectl.api.delete("vm", VM, timeout=120)


def test_import_fills_a_claim_before_the_guest_gets_it(kubectl: Kubectl, system: Kubectl, testguest: None) -> None:
    del testguest
    disk = {**DATA, "source": {"name": "data", "import": {"http": {"url": f"{test_imports.URL}?signature=secret"}}}}
    kubectl.api.apply(shared_claim("data"), with_disks(linux_vm(VM), ROOT))
    vm = kubectl.api.ready("vm", VM, timeout=240)
    pod, node = vm["status"]["podUID"], vm["status"]["nodeName"]
    with console(kubectl, VM) as guest:
        guest.expect("GUEST-READY", timeout=120)
        edit(kubectl, ROOT, disk)
        vm = kubectl.api.until("vm", VM, has("DisksReady", reason="ImportFailed"), timeout=120, what="DisksReady is ImportFailed")
        assert [(each["disk"], each["phase"]) for each in vm["status"]["imports"]] == [("data", "Retrying")]
        assert [each["state"] for each in vm["status"]["changes"]] == ["Failed"]
        assert "signature" not in str(vm["status"]["changes"])
        assert not is_true("Migratable")(vm)
        edit(kubectl, ROOT)
        kubectl.api.until("vm", VM, lambda vm: "running" not in vm["status"], timeout=60, what="no disk")
        no_attachment_pod(kubectl)

        edit(kubectl, ROOT, disk)
        kubectl.api.until("vm", VM, lambda vm: vm["status"].get("imports"), timeout=60, what="an import")
        killed = kill_all(system, "virt-handler")
        kubectl.api.create(test_imports.a_server())
        kubectl("create", "service", "clusterip", "images", "--tcp=80:8080")
        await_recovery(system, "virt-handler", killed)
        vm = until_disks(kubectl, "scratch", "data")
        assert (vm["status"]["podUID"], is_true("RestartRequired")(vm)) == (pod, False)
        kubectl.api.until("vm", VM, is_true("Migratable"), timeout=60, what="Migratable")
        sees_disk(guest)
        expected = kubectl("exec", "images", "--", "sh", "-c", "head -c 1048576 /guest/disk/disk.img | md5sum").split()[0]
        assert expected in guest.run("head -c 1048576 /dev/vdb | md5sum")
        guest.run("echo of-the-guest | dd of=/dev/vdb conv=fsync")
        kubectl.api.events("ImportFailed", of=VM, timeout=10)
        kubectl.api.events("ImportSucceeded", of=VM, timeout=10)

    reads_it_elsewhere_and_lets_go(kubectl, node)
    kubectl("delete", "pod/images", "service/images", "--wait=true")


def test_waiting_disk_is_created_grows_and_becomes_a_medium(kubectl: Kubectl, testguest: None) -> None:
    del testguest
    kubectl.api.apply(shared_claim("data"), with_disks(linux_vm(VM), ROOT, TRAY))
    node = kubectl.api.ready("vm", VM, timeout=240)["status"]["nodeName"]

    def data(**create: str) -> dict[str, Any]:
        return {**DATA, "source": {"name": "data", **({"create": create} if create else {})}}

    with console(kubectl, VM) as guest:
        guest.expect("GUEST-READY", timeout=120)
        edit(kubectl, ROOT, TRAY, data())
        vm = kubectl.api.until("vm", VM, lambda vm: vm["status"].get("changes"), timeout=60, what="a disk without an image")
        assert [(each["path"], each["state"]) for each in vm["status"]["changes"]] == [("spec.domain.devices.disks[data]", "Failed")]
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
        assert "of-the-guest" in guest.run("head -c 12 /dev/sr0")
        assert not is_true("RestartRequired")(vm)

    made = kubectl.api.create(migration(VM, node=other_node(kubectl, node)))
    assert final_phase(kubectl, made["metadata"]["name"]) == "Succeeded"
    with console(kubectl, VM) as guest:
        guest.run("exec 3</dev/sr0")
        assert "of-the-guest" in guest.run("head -c 12 <&3")
        edit(kubectl, ROOT, TRAY)
        vm = kubectl.api.until("vm", VM, lambda vm: vm["status"].get("changes"), timeout=60, what="a locked tray")
        assert [(each["state"], each["message"]) for each in vm["status"]["changes"]] == [
            ("Failed", "the guest locks the tray of drive 'tray': unmount its medium in the guest")
        ]
        guest.run("exec 3<&-")
        until_disks(kubectl, "scratch")
        assert "No medium found" in guest.run("head -c 12 /dev/sr0")
