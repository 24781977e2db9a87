from __future__ import annotations

import pytest

from apiserver.apis.virt.v1alpha1 import defaults, validation
from benchmarks import devices


@pytest.mark.parametrize("name", devices.DEVICES)
def test_a_machine_with_a_device_is_valid(name: str) -> None:
    vm = devices.machine("bench-0-0", devices.DEVICES[name])
    vm["metadata"]["namespace"] = "bench"
    defaults.default_virtual_machine(vm)
    assert validation.validate_virtual_machine(vm) == []


def test_no_two_machines_are_the_same() -> None:
    every = [devices.machine("bench-0-0", more) for more in ({}, *devices.DEVICES.values())]
    assert [each for each in every if every.count(each) > 1] == []
