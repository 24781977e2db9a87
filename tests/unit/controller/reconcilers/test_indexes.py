from __future__ import annotations

from typing import Any, cast

import pytest

from apiserver.apis.meta.objects import NamespacedName
from apiserver.apis.virt.lifecycle.evictions import machine_of
from apiserver.client.informer import Informer
from apiserver.client.store import Store
from controller.reconcilers import disk_claims, indexes
from controller.reconcilers.indexes import Informers, Mac, NodeFile, ServerDisk
from controller.reconcilers.launcher_pods import scheduling
from tests.unit.controller.reconcilers.builders import a_migration, a_vm, an_attempt
from tests.unit.controller.reconcilers.processors import MILAN, a_node

CLAIM = {"name": "a", "type": "PersistentVolumeClaim", "source": {"name": "data"}}
SERVER = {"name": "b", "type": "NFS", "source": {"host": "a.example", "path": "/vms/a.img"}}
FILE = {"name": "c", "type": "HostDisk", "source": {"path": "/srv/a"}}


def test_storage_is_found_by_what_it_is() -> None:
    vm = a_vm(domain={"devices": {"disks": [CLAIM, SERVER, FILE]}})
    (digest,) = disk_claims.servers_of(vm)
    assert indexes.storage_of_vm(vm) == [NamespacedName("default", "data"), ServerDisk("default", digest), NodeFile("/srv/a")]


def test_storage_keys_of_different_kinds_are_distinct() -> None:
    assert len({NamespacedName("default", "x"), ServerDisk("default", "x"), NodeFile("x")}) == 3


def test_a_machine_that_is_not_sound_is_in_no_index() -> None:
    vm = a_vm(domain={"devices": {"disks": "text", "interfaces": "text"}})
    assert (indexes.storage_of_vm(vm), indexes.macs_of_vm(vm)) == ([], [])


def test_storage_is_held_with_a_pod_or_a_pending_rerun() -> None:
    domain = {"devices": {"disks": [CLAIM]}}
    ran = [an_attempt(1, result="Failed", runningTime="2026-01-01T00:00:10Z")]
    assert indexes.held_storage_of_vm(a_vm(domain=domain)) == []
    assert indexes.held_storage_of_vm(a_vm(domain=domain, phase="Running")) == [NamespacedName("default", "data")]
    assert indexes.held_storage_of_vm(a_vm(domain=domain, phase="Failed", attempts=ran)) == [NamespacedName("default", "data")]


def test_an_address_is_one_however_it_is_written() -> None:
    vm = a_vm(domain={"devices": {"interfaces": [{"name": "default", "mac": "02-AB-00-00-00-01"}]}})
    assert indexes.macs_of_vm(vm) == [Mac("default", "02:ab:00:00:00:01")]


def test_a_migration_is_found_by_its_machine() -> None:
    assert indexes.machine_of(a_migration()) == [NamespacedName("default", "testvm")]
    assert str(machine_of(a_migration())) == "default/testvm"
    assert str(NamespacedName("", "node1")) == "node1"


def test_nodes_are_found_by_kvm_device_and_while_emptied() -> None:
    offered, withdrawn, emulated = a_node("a", MILAN), a_node("b", MILAN, kvm="0"), a_node("c", None, kvm="0", capacity="0")
    assert [indexes.devices_of_node(each) for each in (offered, withdrawn, emulated, {})] == [["devices.kubevirt.io/kvm"], [], [], []]
    cordoned = {**emulated, "spec": {"unschedulable": True}}
    assert [indexes.emptying_of_node(each) for each in (offered, cordoned)] == [[], [indexes.EMPTIED]]


NONE: Any = None


@pytest.mark.parametrize(
    ("toleration", "closed", "never"),
    [
        ({"key": "other", "operator": "Exists"}, {"boot-a", "boot-b"}, ("old",)),
        ({"operator": "Exists"}, {"boot-a"}, ("boot-a", "old")),
        ({"key": "node.kubernetes.io/out-of-service", "operator": "Exists", "effect": "NoExecute"}, {"boot-a"}, ("boot-a", "old")),
        ({"operator": "Exists", "effect": "NoSchedule"}, {"boot-a", "boot-b"}, ("old",)),
    ],
)
def test_no_pod_starts_where_its_guest_would_count_as_dead(toleration: dict[str, str], closed: set[str], never: tuple[str, ...]) -> None:
    """A pod that does not tolerate the taint is kept away by it, also during the next boot."""
    nodes = Store({indexes.BY_FENCE: indexes.fence_of_node})
    taint = {"key": "node.kubernetes.io/out-of-service", "value": f"boot-{'a' * 32}", "effect": "NoExecute"}
    for each in "ab":
        status = {"nodeInfo": {"bootID": each * 32}}
        nodes.apply({"metadata": {"name": f"boot-{each}"}, "spec": {"taints": [taint]}, "status": status})
    nodes.apply({"metadata": {"name": "other"}, "spec": {}})
    vm = a_vm(tolerations=[toleration])
    found = Informers(NONE, NONE, NONE, NONE, cast(Informer, nodes), NONE, NONE, NONE).fenced_nodes(vm)
    assert found == closed
    assert scheduling.never_on(vm, {"old": "another protocol"}, found) == never
