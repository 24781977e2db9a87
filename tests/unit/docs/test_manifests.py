"""VMs in documents: their fields exist, docs/api.md lists them all, and virt-api accepts their values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel

from apiserver.apis.meta import decoding
from apiserver.apis.virt.lifecycle import conditions, departure, progress
from apiserver.apis.virt.v1alpha1 import defaults, types, validation
from apiserver.apis.virt.v1alpha1.allowed import Allowed
from apiserver.apis.virt.v1alpha1.domain.disks import Disk
from apiserver.apis.virt.v1alpha1.domain.document import Devices, Domain
from apiserver.apis.virt.v1alpha1.domain.firmware import Firmware
from apiserver.apis.virt.v1alpha1.domain.interfaces import Interface
from apiserver.registry.generic.strategy import NOTHING_WRONG
from apiserver.registry.virt.replica_sets import ReplicaSetStrategy
from controller.reconcilers.migrations import migration_retries

ROOT = Path(__file__).parents[3]


def blocks(document: str) -> list[Any]:
    return [yaml.safe_load(each) for each in re.findall(r"^```yaml\n(.*?)^```", (ROOT / document).read_text(), re.DOTALL | re.MULTILINE)]


def errors(vm: dict[str, Any]) -> list[str]:
    unknown, found = decoding.read(types.VirtualMachine, vm)
    if unknown or found:
        return [*unknown, *map(str, found)]
    defaults.default_virtual_machine(vm)
    return [str(each) for each in validation.validate_virtual_machine(vm, Allowed(macvtap=True, storage_plugins=frozenset({"images"})))]


def test_the_readme_shows_machines_that_are_accepted() -> None:
    *machines, pool = blocks("README.md")
    assert [errors(vm) for vm in machines] == [[], []]
    strategy = ReplicaSetStrategy()
    assert strategy.read(pool) == NOTHING_WRONG
    strategy.default(pool)
    assert strategy.validate(pool) == []


def test_first_boot_page_shows_a_valid_machine() -> None:
    seed, keys, *more = blocks("docs/first-boot.md")
    spec = {**seed["spec"], **keys["spec"]}
    assert len(more) == 3
    for disks in more:
        spec["domain"]["devices"]["disks"] += disks
    assert errors({"kind": "VirtualMachine", "metadata": {"name": "vm1", "namespace": "default"}, "spec": spec}) == []


def of_devices(document: str, kinds: Sequence[str]) -> list[dict[str, Any]]:
    shown = blocks(document)
    assert len(shown) == len(kinds)
    return [_machine({kind: devices}) for kind, devices in zip(kinds, shown, strict=True)]


def _machine(devices: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "VirtualMachine", "metadata": {"name": "vm1", "namespace": "default"}, "spec": {"domain": {"devices": devices}}}


def test_the_disks_that_the_text_on_disks_shows_are_accepted() -> None:
    found = of_devices("docs/disks.md", [*["disks"] * 6, "filesystems"])
    assert [errors(vm) for vm in found] == [[]] * 7


def test_networks_page_shows_valid_interfaces() -> None:
    found = of_devices("docs/networks.md", ["interfaces"] * 4)
    assert [errors(vm) for vm in found] == [[]] * 4


@pytest.mark.parametrize(("document", "model"), [("docs/disks.md", Disk), ("docs/networks.md", Interface)], ids=["disks", "interfaces"])
def test_the_texts_name_every_type(document: str, model: type[BaseModel]) -> None:
    named = set(re.findall(r"`(\w+)`", (ROOT / document).read_text()))
    assert set(literals(model.model_fields["type"].annotation)) - named == set()


def literals(annotation: Any) -> Iterator[str]:
    for each in get_args(annotation):
        if isinstance(each, str):
            yield each
        else:
            yield from literals(each)


def shown(kind: str = "VirtualMachine") -> set[str]:
    text = (ROOT / "docs/api.md").read_text()
    return set(re.findall(r"\w+", text[text.index(f"## {kind}\n") :].split("```")[1]))


@pytest.mark.parametrize(
    "model",
    [types.VirtualMachineSpec, Domain, Devices, Disk, Firmware, types.VirtualMachineStatus],
    ids=lambda model: model.__name__,
)
def test_the_api_page_names_every_field_of_a_machine(model: type[BaseModel]) -> None:
    assert {each.alias or name for name, each in model.model_fields.items()} - shown() == set()


def test_api_page_names_all_migration_fields_and_conditions() -> None:
    named = {each.alias or name for name, each in types.MigrationStatus.model_fields.items()}
    assert named | {"Succeeded", departure.RELEASED, progress.CONVERGING, migration_retries.TARGET_SCHEDULED} <= shown("Migration")


def test_the_api_page_names_every_condition_of_a_machine() -> None:
    names = {getattr(conditions, each) for each in ("READY", "PAUSED", "MIGRATABLE", "DISKS_READY", "NETWORK_READY", "DISRUPTION_TARGET")}
    assert names | {conditions.ACCESS_CREDENTIALS, conditions.AGENT_CONNECTED} <= shown()
