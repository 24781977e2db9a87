from __future__ import annotations

import pytest

from apiserver.apis.virt.places.hypervisors import may_be_virtual

PHYSICAL = "processor\t: 0\nflags\t\t: fpu vmx\nvmx flags\t: vnmi\n"
GUEST = "processor\t: 1\nflags\t\t: fpu vmx hypervisor\n"
ARM64 = "processor\t: 0\nFeatures\t: fp asimd\n"


@pytest.mark.parametrize(("cpuinfo", "found"), [(PHYSICAL, False), (GUEST, True), (PHYSICAL + GUEST, True), (ARM64, True), ("", True)])
def test_only_flags_prove_a_physical_machine(cpuinfo: str, found: bool) -> None:
    assert may_be_virtual(cpuinfo) is found
