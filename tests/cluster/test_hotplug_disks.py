from __future__ import annotations

import pytest

from tests.cluster import test_imports
from tests.cluster.api import has, is_true
from tests.cluster.hot_plug import (
    DATA,
    ROOT,
    VM,
    attachment_pods,
    cleared,
    edit,
    has_disk,
    names,
    no_attachment_pod,
    reads_it_elsewhere_and_lets_go,
    sees_disk,
    until_disks,
)
from tests.cluster.kube import Kubectl, console
from tests.cluster.manifests import linux_vm, migration, shared_claim, with_disks
from tests.cluster.test_bad_days import await_recovery, kill_all
from tests.cluster.test_migrations import final_phase, other_node
from tests.damage import never_again
from tests.testbed import kubectl as testbed_kubectl
from tests.testbed import layout

__all__ = ["cleared"]

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not testbed_kubectl.is_own_cluster(), reason="looks at the files of a claim"),
]


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
        with never_again("a lost write"):
            assert "of-the-guest" in guest.run("head -c 12 /dev/vdb")
        edit(kubectl, ROOT)
        until_disks(kubectl, "scratch")
        assert not has_disk(guest)

        edit(kubectl, ROOT, DATA)
        until_disks(kubectl, "scratch", "data")
        sees_disk(guest)
        with never_again("a lost write"):
            assert "of-the-guest" in guest.run("head -c 12 /dev/vdb")
    killed = kill_all(system, "virt-handler")
    edit(kubectl, ROOT)
    await_recovery(system, "virt-handler", killed)
    until_disks(kubectl, "scratch")
    with console(kubectl, VM) as guest:
        assert not has_disk(guest)
    kubectl.api.events("DiskDetached", of=VM, timeout=10)
    no_attachment_pod(kubectl)
    images = [each for each in layout.shared_volumes().rglob("disk.img") if each.read_bytes().startswith(b"of-the-guest")]
    with never_again("a lost write"):
        assert len(images) == 1


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
    with console(kubectl, VM) as guest:
        sees_disk(guest)
        expected = kubectl("exec", "images", "--", "sh", "-c", "head -c 1048576 /guest/disk/disk.img | md5sum").split()[0]
        with never_again("wrong bytes"):
            assert expected in guest.run("head -c 1048576 /dev/vdb | md5sum")
        guest.run("echo of-the-guest | dd of=/dev/vdb conv=fsync")
        kubectl.api.events("ImportFailed", of=VM, timeout=10)
        kubectl.api.events("ImportSucceeded", of=VM, timeout=10)

    reads_it_elsewhere_and_lets_go(kubectl, node)
    kubectl("delete", "pod/images", "service/images", "--wait=true")
