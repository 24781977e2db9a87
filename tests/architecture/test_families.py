from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import pytest

from apiserver.apis.virt.hardware import network_disks
from apiserver.apis.virt.v1alpha1.domain import document as models
from apiserver.apis.virt.v1alpha1.domain import network_disks as rules
from controller.reconcilers.launcher_pods import launcher_pod
from controller.reconcilers.launcher_pods import network_disks as needs
from launcher.domain import document as xml
from launcher.domain import network_disks as sources
from tests.fields.schema import BESIDE, DEVICES

ROOT = Path(__file__).parents[2]
MODELS, MEANINGS, REQUIREMENTS, XML = (
    "apiserver/apis/virt/v1alpha1/domain",
    "apiserver/apis/virt/hardware",
    "controller/reconcilers/launcher_pods",
    "launcher/domain",
)
SHARED = {
    MODELS: {
        "cloud_init",
        "cpu_names",
        "cpu_numa",
        "disk_driver",
        "disk_import",
        "disk_io_tune",
        "disk_sharing",
        "document",
        "downward_api",
        "host_disks",
        "images",
        "network_disks",
        "plugin_disks",
        "plugins",
        "rules",
        "service_accounts",
    },
    MEANINGS: {
        "cloud_init",
        "cpu_models",
        "cpu_numa",
        "devices",
        "disk_driver",
        "disk_imports",
        "disk_io_tune",
        "given",
        "host_disks",
        "network_disks",
        "plugin_disks",
    },
    REQUIREMENTS: {
        "access_credentials",
        "domain_xml",
        "downward_api",
        "host_disks",
        "launcher",
        "launcher_pod",
        "made_from",
        "managed_save",
        "network_disks",
        "plugin_disks",
        "requirements",
        "scheduling",
    },
    XML: {
        "cloud_init",
        "copied_disks",
        "cpu_numa",
        "definition",
        "disk_caches",
        "disk_driver",
        "disk_io_tune",
        "disk_origins",
        "document",
        "filling",
        "firmware_files",
        "migratability",
        "network_disks",
        "passed_through",
        "passt",
        "plugin_disks",
        "smbios",
        "states",
        "values",
    },
}
UNASKED = {"guest_agent", "pci", "usb"}
"""Parts of every domain that no field controls."""
WITHOUT_XML = {"machine", "resources"}


def modules(package: str) -> set[str]:
    return {each.stem for each in (ROOT / package).glob("*.py")} - SHARED[package] - {"__init__"}


def test_every_family_has_models_and_xml() -> None:
    assert modules(MODELS) - WITHOUT_XML == modules(XML) - UNASKED
    assert not UNASKED & modules(MODELS)


@pytest.mark.parametrize("package", [MEANINGS, REQUIREMENTS])
def test_no_layer_has_a_family_of_its_own(package: str) -> None:
    assert modules(package) <= modules(MODELS)


def test_no_family_is_forgotten_by_the_whole() -> None:
    assert {each.__name__.rpartition(".")[2] for each in models._FAMILIES} == modules(MODELS)
    assert {each.__name__.rpartition(".")[2] for each in launcher_pod._FAMILIES} == modules(REQUIREMENTS) | {"launcher"}
    assert {each.__name__.rpartition(".")[2] for each in xml._FAMILIES} == modules(XML)


@pytest.mark.parametrize("named", [rules.FIELDS, rules.VALIDATED, needs.BYTES, sources.APPENDED], ids=["fields", "rules", "memory", "XML"])
def test_every_layer_knows_each_type_of_network_disk(named: Mapping[str, object]) -> None:
    assert named.keys() == network_disks.KINDS.keys()


@pytest.mark.parametrize("model", [models.Domain, models.Devices])
def test_every_field_of_the_whole_is_of_the_family_of_its_name(model: type[models.Domain | models.Devices]) -> None:
    for name, field in model.model_fields.items():
        if name == "devices" or f"{DEVICES}.{field.alias}" in BESIDE:
            continue
        (kind, *_) = get_args(field.annotation)
        (kind, *_) = get_args(kind) or (kind,)
        snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
        assert kind.__module__.rpartition(".")[2] == snake, f"{name} is defined in {kind.__module__}"
