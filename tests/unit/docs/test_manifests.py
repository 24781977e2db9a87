"""Manifests in documents are ones that virt-api accepts; those in ``examples/`` are held to that beside the models."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from apiserver.apis.meta import decoding
from apiserver.apis.virt.v1alpha1 import defaults, types, validation

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
    seed, keys, answers = blocks("docs/first-boot.md")
    spec = {**seed["spec"], **keys["spec"]}
    spec["domain"]["devices"]["disks"] += answers
    assert errors({"kind": "VirtualMachine", "metadata": {"name": "vm1", "namespace": "default"}, "spec": spec}) == []
