from __future__ import annotations

import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from apiserver.apis.meta import errors
from tests.cluster.api import condition_of, has
from tests.cluster.kube import Console, Kubectl, console
from tests.cluster.manifests import claim_disk, linux_vm, shared_claim, tiny_vm, with_disks
from tests.damage import never_again
from tests.testbed import kubectl as testbed_kubectl
from tests.testbed import layout, nodes

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not testbed_kubectl.is_own_cluster(), reason="needs devices and file systems of the test bed's nodes"),
]
MIB: Final = 1 << 20
CLASS: Final = "by-hand"
SCRATCH: Final = {"name": "scratch", "type": "EmptyDisk", "source": {"size": "8Mi"}}


def on(node: layout.Node, *command: str) -> None:
    subprocess.run([*nodes.inside(node), *command], check=True)


def volume(name: str, size: str, mode: str, **source: Any) -> list[dict[str, Any]]:
    modes, storage = ["ReadWriteMany"], {"storage": size}
    terms = [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node.name for node in layout.NODES]}]
    common = {"storageClassName": CLASS, "accessModes": modes, "volumeMode": mode}
    spec = {**common, "capacity": storage, "persistentVolumeReclaimPolicy": "Retain", **source}
    if "local" in source:
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": terms}]}}
    claim = {**common, "volumeName": name, "resources": {"requests": storage}}
    return [
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": claim},
    ]


def discard(kubectl: Kubectl, name: str) -> None:
    for kind in ("pvc", "pv"):
        with suppress(errors.NotFound):
            kubectl.api.delete(kind, name)


@contextmanager
def device(kubectl: Kubectl, directory: Path, mebibytes: int = 16) -> Iterator[str]:
    name, file = f"device-{secrets.token_hex(3)}", directory / "device.img"
    with file.open("wb") as image:
        image.truncate(mebibytes * MIB)
    path = subprocess.run(["losetup", "--find", "--show", file], check=True, capture_output=True, text=True).stdout.strip()
    try:
        kubectl.api.apply(*volume(name, f"{mebibytes}Mi", "Block", local={"path": path}))
        yield name
    finally:
        discard(kubectl, name)
        subprocess.run(["losetup", "--detach", path], check=True)


@contextmanager
def small(kubectl: Kubectl, node: layout.Node) -> Iterator[tuple[str, Path]]:
    name = f"small-{secrets.token_hex(3)}"
    directory = layout.shared_volumes() / name
    directory.mkdir(parents=True)
    on(node, "mount", "-t", "tmpfs", "-o", "size=8m,mode=777", name, str(directory))
    try:
        on(node, "truncate", "-s", "64M", str(directory / "disk.img"))
        on(node, "chown", "107:107", str(directory / "disk.img"))
        kubectl.api.apply(*volume(name, "64Mi", "Filesystem", hostPath={"path": str(directory), "type": "Directory"}))
        yield name, directory
    finally:
        discard(kubectl, name)
        on(node, "umount", "--lazy", str(directory))
        directory.rmdir()


def told(kubectl: Kubectl, vm: str, kind: str, **fields: str) -> dict[str, Any]:
    found = kubectl.api.until("vm", vm, has(kind, **fields), timeout=120, what=f"{kind} of {vm} is {fields}")
    return condition_of(found, kind)


def ready(kubectl: Kubectl, *names: str) -> None:
    for name in names:
        kubectl.api.ready("vm", name, timeout=240)


def mac_address(kubectl: Kubectl, vm: str) -> str:
    (found,) = kubectl.api.get("vm", vm)["status"]["interfaces"]
    return str(found["mac"])


def delete(kubectl: Kubectl, *names: str) -> None:
    for name in names:
        kubectl.api.delete("vm", name)
    for name in names:
        kubectl.api.gone("vm", name, timeout=120)


def boot(viewer: Console) -> Console:
    viewer.expect("GUEST-READY", timeout=120)
    return viewer


def waits_for_blank(vm: dict[str, Any]) -> bool:
    told = [(each["reason"], each["message"]) for each in vm["status"].get("volumeStatus") or () if each["phase"] == "Pending"]
    return told == [("DiskInUse", "PersistentVolumeClaim blank is in use by virtual machine blank")]


def test_blank_disk_is_created_in_a_new_claim_and_persists(kubectl: Kubectl, testguest: None) -> None:
    del testguest
    kubectl.api.apply(shared_claim("blank"))
    disk = {**claim_disk("blank"), "source": {"name": "blank", "create": {"size": "33Mi"}}}
    kubectl.api.apply(with_disks(linux_vm("blank"), disk))
    ready(kubectl, "blank")
    mac = mac_address(kubectl, "blank")
    kubectl.api.apply(with_disks(tiny_vm("waits"), SCRATCH))
    ready(kubectl, "waits")
    kubectl.api.apply(with_disks(tiny_vm("waits"), SCRATCH, claim_disk("blank")))
    kubectl.api.until("vm", "waits", waits_for_blank, timeout=60, what="a disk that waits")
    with console(kubectl, "blank") as viewer:
        assert str(33 * MIB // 512) in boot(viewer).run("cat /sys/block/vda/size")
        assert mac in viewer.run("cat /sys/class/net/eth0/address")
        viewer.run("echo written-before | dd of=/dev/vda conv=fsync")
    kubectl.api.verb("blank", "restart")
    kubectl.api.until("vm", "blank", lambda found: found["status"]["attempt"] == 2, timeout=120, what="the second attempt")
    ready(kubectl, "blank")
    with console(kubectl, "blank") as viewer:
        with never_again("a lost write"):
            assert "written-before" in boot(viewer).run("head -c 14 /dev/vda")
        assert mac in viewer.run("cat /sys/class/net/eth0/address")
    assert mac_address(kubectl, "blank") == mac
    assert waits_for_blank(kubectl.api.get("vm", "waits"))
    delete(kubectl, "blank", "waits")


def test_a_device_is_one_machines_unless_both_share_it(kubectl: Kubectl, tmp_path: Path) -> None:
    with device(kubectl, tmp_path) as claim:
        kubectl.api.apply(with_disks(tiny_vm("first"), claim_disk(claim)))
        ready(kubectl, "first")
        kubectl.api.apply(with_disks(tiny_vm("second"), claim_disk(claim)))
        waits = told(kubectl, "second", "DisksReady", reason="DiskInUse")
        assert claim in waits["message"]
        assert "by virtual machine first;" in waits["message"]
        with console(kubectl, "first") as viewer:
            boot(viewer)
        second = kubectl.api.get("vm", "second")
        assert condition_of(second, "DisksReady")["reason"] == "DiskInUse"
        assert "attempts" not in second["status"]
        kubectl.api.verb("first", "stop")
        ready(kubectl, "second")
        delete(kubectl, "first", "second")

        disk = {**claim_disk(claim), "shareable": True}
        kubectl.api.apply(with_disks(linux_vm("left"), disk), with_disks(linux_vm("right"), disk))
        ready(kubectl, "left", "right")
        with console(kubectl, "left") as left, console(kubectl, "right") as right:
            boot(left).run("echo of-the-left. | dd of=/dev/vda conv=fsync")
            with never_again("a lost write"):
                assert "of-the-left" in boot(right).run("dd if=/dev/vda bs=512 count=1 iflag=direct 2>/dev/null | head -c 12")
        delete(kubectl, "left", "right")


def test_guest_with_a_full_claim_resumes_unless_paused_by_a_user(kubectl: Kubectl) -> None:
    node = layout.NODES[0]
    with small(kubectl, node) as (claim, directory):
        machine = with_disks(linux_vm("filling", nodeSelector={"kubernetes.io/hostname": node.name}), claim_disk(claim))
        kubectl.api.apply(machine)
        ready(kubectl, "filling")
        with console(kubectl, "filling") as viewer:
            boot(viewer).type("dd if=/dev/zero of=/dev/vda bs=1M count=16 conv=fsync; echo FIRST''-WRITTEN $?\n")
            paused = told(kubectl, "filling", "Paused", status="True")
            assert paused["reason"] == "DiskFull"
            assert "disk 'data': no space left" in paused["message"]
            on(node, "mount", "-o", "remount,size=32m", str(directory))
            viewer.expect("FIRST-WRITTEN 0", timeout=120)
            told(kubectl, "filling", "Paused", status="False")

            viewer.type("dd if=/dev/zero of=/dev/vda bs=1M seek=16 count=40 conv=fsync; echo SECOND''-WRITTEN $?\n")
            told(kubectl, "filling", "Paused", reason="DiskFull", status="True")
            kubectl.api.verb("filling", "pause")
            on(node, "mount", "-o", "remount,size=128m", str(directory))
            with pytest.raises(AssertionError, match="console did not show"):
                viewer.expect("SECOND-WRITTEN", timeout=20)
            kubectl.api.verb("filling", "unpause")
            viewer.expect("SECOND-WRITTEN 0", timeout=120)
        delete(kubectl, "filling")
