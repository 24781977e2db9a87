from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import Any, Final

import pytest

from apiserver.apis.virt.hardware import cloud_init as data
from apiserver.apis.virt.hardware import cpu, disk_imports, disks, plugin_disks
from apiserver.apis.virt.places import names
from apiserver.apis.virt.v1alpha1 import defaults
from controller.reconcilers.launcher_pods.launcher_pod import launcher_pod
from controller.reconcilers.launcher_pods.scheduling import Placement
from controller.reconcilers.settings import Settings
from handler.devices import host_disks
from handler.network import setup
from handler.storage import requests
from importer import plan
from launcher.domain import cloud_init, disk_origins, document, filesystems, passt
from launcher.domain.definition import Definition, Tap
from launcher.domain.disk_origins import Found
from launcher.main.disks import disk_servers, import_plans
from tests.fields import pairs

ONE_WORD: Final = "there is no other word"
CELLS: Final = "another cell has what this one has not, so none changes alone: tests/golden/domain/numa.xml"
FOR_PEOPLE: Final = "it tells devices apart for people"
IMPORTER: Final = "the importer's, which is told all of source.import, and does what it reads there: tests/component/importer"
UNSEEN: Final[Mapping[str, str]] = {
    "cpu.numa.cells[].cpus": CELLS,
    "cpu.numa.cells[].memory": CELLS,
    "devices.consoles[].type": ONE_WORD,
    "devices.watchdog.model": ONE_WORD,
    "devices.vsock.model": ONE_WORD,
    "devices.gpus[].name": FOR_PEOPLE,
    "devices.hostDevices[].name": FOR_PEOPLE,
    "devices.disks[].source.volumeLabel": "an option of the program that makes the image: tests/host/launcher/test_first_boot.py",
    "devices.disks[].source.import.http.url": IMPORTER,
    "devices.disks[].source.import.format": IMPORTER,
    "devices.disks[].source.import.s3.endpoint": IMPORTER,
    "devices.disks[].source.import.s3.bucket": IMPORTER,
    "devices.disks[].source.import.s3.key": IMPORTER,
    "devices.disks[].source.import.s3.region": IMPORTER,
    "devices.disks[].source.import.registry.reference": IMPORTER,
}
"""Fields without an effect in :func:`acting`, and why."""
GUEST: Final[Mapping[str, Any]] = {"uid": "u-1", "hostname": "testvm", "keys": ()}


def acting(written: pairs.Domain) -> list[Any]:
    vm = pairs.machine(written)
    defaults.default_virtual_machine(vm)
    pods = [launcher_pod(vm, 1, {}, Settings("i"), Placement(kvm=kvm)) for kvm in (False, True)]
    for each in pods:
        del each["metadata"]["annotations"][names.SPEC_ANNOTATION]  # differs with every field
    links, plugins = setup.wanted(vm), requests.disks_of(vm)
    domain = plugin_disks.with_served(vm["spec"]["domain"], {each["name"]: plugin_disks.Served("file", 512) for each in plugins})
    own, every = range(cpu.dedicated(domain)), disks.defaulted(domain)
    imports = [
        plan.read(import_plans.plan(disk, given, import_plans.DIRECTORIES, directory="/d"))
        for disk in every
        if (given := disk_imports.of(disk)) is not None
    ]
    beside = (
        [Tap(each.mac or "02:00:00:00:00:01", each.tap, each.model, each.name) for each in links if each.type != "sriov"],
        {each["name"]: Found(block=each["device"] == "lun") for each in every},
        own,
        {each: each % 2 for each in own},
        variables(pods[0]["spec"]["containers"][0]["resources"]["limits"]),
    )
    return [
        [document.to_xml(Definition("default", "testvm", "u-1", domain, accelerator, *beside)) for accelerator in ("qemu", "kvm")],
        pods,
        links,
        passt.settings(domain),
        filesystems.shares(domain),
        disk_origins.origins(domain),
        disk_servers.endpoints_of(domain),
        host_disks.files(domain, host_disks.Allowed(pairs.ALLOWED.host_disks), "default"),
        [(plugin_disks.plugin_of(each), requests.document(vm, "p", each, PurePath("/d"))) for each in plugins],
        [(replace(each, source={}), each.checksum) for each in imports],
        [cloud_init.files(each["type"], each["source"], {}, GUEST) for each in every if each.get("type") in data.TYPES],
    ]


def variables(limits: Mapping[str, str]) -> dict[str, str]:
    counts = {re.sub("[/.]", "_", name.upper()): int(limits[name]) for name in limits if "/" in name}
    return {f"PCI_RESOURCE_{name}": ",".join(f"0000:41:00.{each}" for each in range(count)) for name, count in counts.items()}


@pytest.mark.parametrize("key", pairs.FIELDS)
def test_a_field_acts_on_the_guest(key: str) -> None:
    found = list(pairs.of(key))
    same = [both for both in found if acting(both[0]) == acting(both[1])]
    if key in UNSEEN:
        assert same == found, f"{key} acts on the guest: its entry in UNSEEN is stale"
    else:
        assert found, f"virt-api takes no two machines that differ in {key} alone: tests/fields/pairs.py can say what it needs beside it"
        assert not same, f"{key} reaches nothing that acts on the guest"


def test_fields_without_an_effect_exist() -> None:
    assert UNSEEN.keys() <= pairs.FIELDS.keys()
