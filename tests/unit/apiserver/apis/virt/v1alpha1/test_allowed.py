"""Fields that machines may have only where the administrator of the cluster allows it."""

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


@pytest.mark.parametrize("vm", [a_vm(), a_vm(vsock=None), {"spec": {}}, {"spec": {"domain": None}}], ids=str)
def test_nothing_is_said_of_machines_without_them(vm: dict[str, Any]) -> None:
    assert allowed.validate(vm["spec"], validation.SPEC, NOTHING) == []


def test_a_machine_that_has_them_already_can_be_changed_otherwise_when_they_are_no_longer_allowed() -> None:
    strategy, old = VirtualMachineStrategy(), a_vm(vsock={})
    stopped = copy.deepcopy(old)
    stopped["spec"]["runStrategy"] = "Halted"
    larger = copy.deepcopy(old)
    larger["spec"]["domain"]["memory"]["guest"] = "1Gi"
    assert strategy.validate_update(stopped, old) == []
    assert [str(each).partition(": ")[0] for each in strategy.validate_update(larger, old)] == ["spec.domain.devices.vsock"]
    assert VirtualMachineStrategy(allowed=Allowed(vsock=True)).validate_update(larger, old) == []
