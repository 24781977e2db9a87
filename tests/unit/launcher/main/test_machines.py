from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from apiserver.apis.virt.places import layout
from launcher.hypervisor.port import Disks
from launcher.main.decisions import machines
from launcher.protocol import leases, messages
from tests.unit.apiserver.apis.virt.domainxml.documents import DISK, document

MACHINE = messages.Machine("default", "testvm", "u-1", {}, "qemu")


def test_an_address_of_ipam_keeps_a_guest_in_its_pod() -> None:
    lan = messages.Interface("lan", "52:54:00:c0:ff:ef", "tapx", lease=leases.Lease("192.168.7.9/24", "169.254.75.1"))
    machine = messages.Machine("default", "testvm", "u-1", {}, "qemu", (lan,))
    assert "interface 'lan' has an address from its pod's IPAM" in machines.not_migratable(machine)
    assert machines.not_migratable(dataclasses.replace(machine, interfaces=(dataclasses.replace(lan, lease=None),))) == ""


def test_caches_of_given_xml_keep_a_guest_in_its_pod() -> None:
    assert "cache none" in machines.not_migratable(dataclasses.replace(MACHINE, domain_xml=document(DISK)))
    uncached = document(DISK.replace("type='raw'", "type='raw' cache='none'"))
    assert machines.not_migratable(dataclasses.replace(MACHINE, domain_xml=uncached)) == ""


def test_pod_only_disks_have_libvirts_names() -> None:
    claim = {"name": "root", "type": "PersistentVolumeClaim", "source": {"name": "c"}}
    blank = {"name": "scratch", "type": "EmptyDisk", "source": {"size": "1Mi"}}
    machine = dataclasses.replace(
        MACHINE, domain={"devices": {"disks": [claim, blank, {**blank, "name": "more", "target": {"bus": "scsi"}}]}}
    )
    moved = tuple(
        (f"{layout.DISKS_DIRECTORY}/{each}.overlay/overlay.qcow2", f"{layout.OVERLAYS_DIRECTORY}/{each}.qcow2")
        for each in ("scratch", "more")
    )
    uri = "unix:///run/kubevirt/migration/disks.sock"
    assert machines.disks_of(machine) == Disks(("vdb", "sda"), shallow=True, shared=True, uri=uri, moved=moved)
    assert machines.disks_of(MACHINE) == Disks((), shallow=True, uri="unix:///run/kubevirt/migration/disks.sock")


GROWS: dict[str, Any] = {"memory": {"guest": "1Gi", "maxGuest": "2Gi"}}
XML = "<domain><devices><memory access='shared' model='virtio-mem'/></devices></domain>"


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        ({"domain": GROWS}, True),
        ({"domain": {"memory": {"guest": "1Gi"}, "cpu": {"numa": {"cells": []}}}}, True),
        ({"domain": {"memory": {"guest": "1Gi", "maxGuest": "1Gi"}}}, False),
        ({"domain": GROWS, "accelerator": "kvm"}, False),
        ({"domain_xml": XML}, True),
        ({"domain_xml": "<domain><memory unit='MiB'>256</memory><numatune/></domain>"}, False),
    ],
)
def test_emulated_guest_with_blocks_of_memory_pauses_to_move(machine: dict[str, Any], *, expected: bool) -> None:
    found = dataclasses.replace(MACHINE, **{"accelerator": "qemu", **machine})
    assert machines.must_pause_to_move(found) is expected
