"""Machines that documents show have fields that there are, all of them in ARCHITECTURE.md, and values that virt-api accepts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from apiserver.apis.meta import decoding
from apiserver.apis.virt import conditions
from apiserver.apis.virt.v1alpha1 import defaults, types, validation
from apiserver.apis.virt.v1alpha1.domain.disks import Disk
from apiserver.apis.virt.v1alpha1.domain.document import Devices, Domain
from apiserver.apis.virt.v1alpha1.domain.firmware import Firmware

ROOT = Path(__file__).parents[3]


def blocks(document: str) -> list[Any]:
    """Return what stands in the document as YAML."""
    return [yaml.safe_load(each) for each in re.findall(r"^```yaml\n(.*?)^```", (ROOT / document).read_text(), re.DOTALL | re.MULTILINE)]


def errors(vm: dict[str, Any]) -> list[str]:
    unknown, found = decoding.read(types.VirtualMachine, vm)
    if unknown or found:
        return [*unknown, *map(str, found)]
    defaults.default_virtual_machine(vm)
    return [str(each) for each in validation.validate_virtual_machine(vm)]


def test_the_readme_shows_machines_that_are_accepted() -> None:
    shown = blocks("README.md")
    assert len(shown) == 2
    assert [errors(vm) for vm in shown] == [[], []]


def test_the_parts_of_a_machine_in_the_text_on_its_first_boot_are_one_that_is_accepted() -> None:
    seed, keys, *more = blocks("docs/first-boot.md")
    spec = {**seed["spec"], **keys["spec"]}
    assert len(more) == 3
    for disks in more:
        spec["domain"]["devices"]["disks"] += disks
    assert errors({"kind": "VirtualMachine", "metadata": {"name": "vm1", "namespace": "default"}, "spec": spec}) == []


def shown() -> set[str]:
    """Return the words of the machine that ARCHITECTURE.md shows."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    return set(re.findall(r"\w+", text[text.index("### 3.1 VirtualMachine") : text.index("### 3.2 Migration")].split("```")[1]))


@pytest.mark.parametrize(
    "model",
    [types.VirtualMachineSpec, Domain, Devices, Disk, Firmware, types.VirtualMachineStatus],
    ids=lambda model: model.__name__,
)
def test_the_architecture_names_every_field_of_a_machine(model: type[BaseModel]) -> None:
    assert {each.alias or name for name, each in model.model_fields.items()} - shown() == set()


def test_the_architecture_names_every_condition_of_a_machine() -> None:
    names = {getattr(conditions, each) for each in ("READY", "PAUSED", "MIGRATABLE", "DISKS_READY", "NETWORK_READY", "DISRUPTION_TARGET")}
    assert names | {conditions.ACCESS_CREDENTIALS, conditions.AGENT_CONNECTED} <= shown()
