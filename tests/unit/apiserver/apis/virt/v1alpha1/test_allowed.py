from __future__ import annotations

import copy
from typing import Any

import pytest

from apiserver.apis.virt.v1alpha1 import allowed, defaults, validation
from apiserver.apis.virt.v1alpha1.allowed import NOTHING, Allowed
from apiserver.registry.virt.virtualmachines import VirtualMachineStrategy


def a_vm(**devices: Any) -> dict[str, Any]:
    vm: dict[str, Any] = {"metadata": {"name": "vm1", "namespace": "acc"}, "spec": {"domain": {"devices": devices}}}
    defaults.default_virtual_machine(vm)
    return vm


def test_sockets_to_the_node_are_refused_unless_they_are_allowed() -> None:
    (found,) = validation.validate_virtual_machine(a_vm(vsock={}))
    assert str(found).startswith("spec.domain.devices.vsock: Forbidden: is not allowed in this cluster")
    assert "vsock.enabled" in str(found)
    assert validation.validate_virtual_machine(a_vm(vsock={}), Allowed(vsock=True)) == []


def test_macvtaps_are_refused_unless_they_are_allowed() -> None:
    vm = a_vm(interfaces=[{"name": "default"}, *({"name": each, "type": "macvtap", "network": each} for each in ("lan", "wan"))])
    found = [str(each) for each in validation.validate_virtual_machine(vm)]
    assert [each.partition(": ")[0] for each in found] == [f"spec.domain.devices.interfaces[{each}].type" for each in (1, 2)]
    assert found[0].endswith(
        ": Forbidden: macvtap is not allowed in this cluster: an administrator can allow it "
        "(--allow-macvtap of virt-api, macvtap.enabled of the chart)"
    )
    assert validation.validate_virtual_machine(vm, Allowed(macvtap=True)) == []


def test_plugins_are_refused_unless_the_nodes_have_them() -> None:
    vm = a_vm(interfaces=[{"name": "default"}, {"name": "lan", "type": "plugin", "plugin": "isolated"}])
    (found,) = validation.validate_virtual_machine(vm)
    assert str(found).startswith("spec.domain.devices.interfaces[1].type: Forbidden: network plugins are not allowed in this cluster")
    assert "plugins.network" in str(found)
    (found,) = validation.validate_virtual_machine(vm, Allowed(network_plugins=frozenset({"vlan", "other"})))
    assert str(found) == ('spec.domain.devices.interfaces[1].plugin: Unsupported value: "isolated": supported values: "other", "vlan"')
    assert validation.validate_virtual_machine(vm, Allowed(network_plugins=frozenset({"isolated"}))) == []


@pytest.mark.parametrize("vm", [a_vm(), a_vm(vsock=None), {"spec": {}}, {"spec": {"domain": None}}], ids=str)
def test_nothing_is_said_of_machines_without_them(vm: dict[str, Any]) -> None:
    assert allowed.validate(vm["spec"], validation.SPEC, NOTHING) == []


def test_storage_plugin_is_refused_unless_allowed_by_name() -> None:
    images, other = ({"type": "Plugin", "source": {"plugin": each}} for each in ("images", "other"))
    vm = a_vm(disks=[images, {"type": "Image", "source": {"reference": "a"}}, other])
    (found,) = validation.validate_virtual_machine(vm, Allowed(storage_plugins=frozenset({"images"})))
    assert str(found) == 'spec.domain.devices.disks[2].source.plugin: Unsupported value: "other": supported values: "images"'
    first, second = map(str, validation.validate_virtual_machine(vm))
    assert first.startswith("spec.domain.devices.disks[0].type: Forbidden: storage plugins are not allowed in this cluster")
    assert ("plugins.storage" in first, second.startswith("spec.domain.devices.disks[2].type: ")) == (True, True)
    assert validation.validate_virtual_machine(vm, Allowed(storage_plugins=frozenset({"images", "other"}))) == []


def test_host_disk_is_refused_outside_allowed_directories() -> None:
    files = ["/var/vms/acc/a.img", "/var/vms/other/a.img", "/var/vmsacc/a.img", "/srv/images/a/b.img", "/srv/images"]
    vm = a_vm(disks=[{"type": "HostDisk", "source": {"path": each}} for each in files])
    vm["metadata"]["namespace"] = "acc"
    nothing = [str(each) for each in validation.validate_virtual_machine(vm)]
    assert [each.partition(": ")[0] for each in nothing] == [f"spec.domain.devices.disks[{each}].type" for each in range(5)]
    assert "hostDisks.paths of the chart" in nothing[0]
    some = validation.validate_virtual_machine(vm, Allowed(host_disks=("/var/vms/{namespace}", "/srv/images")))
    assert [str(each).partition(": ")[0] for each in some] == [f"spec.domain.devices.disks[{each}].source.path" for each in (1, 2, 4)]
    assert "must be below an allowed directory: /var/vms/acc, /srv/images (" in str(some[0])


def test_machine_with_disallowed_devices_can_still_be_edited() -> None:
    strategy, old = VirtualMachineStrategy(), a_vm(vsock={})
    stopped = copy.deepcopy(old)
    stopped["spec"]["runStrategy"] = "Halted"
    larger = copy.deepcopy(old)
    larger["spec"]["domain"]["memory"]["guest"] = "1Gi"
    assert strategy.validate_update(stopped, old) == []
    assert [str(each).partition(": ")[0] for each in strategy.validate_update(larger, old)] == ["spec.domain.devices.vsock"]
    assert VirtualMachineStrategy(allowed=Allowed(vsock=True)).validate_update(larger, old) == []
