from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from apiserver.kubectl import flags, volumes
from apiserver.kubectl.access import Access
from apiserver.kubectl.messages import Failure
from tests.fakes.kubeapi import FakeAPI

DATA = {"name": "data", "type": "PersistentVolumeClaim", "source": {"name": "data"}}
VMS = "/apis/kubevirt.io/v1alpha1/virtualmachines"
ROOT = {"type": "PersistentVolumeClaim", "source": {"name": "root"}}


@pytest.fixture
async def api() -> FakeAPI:
    api = FakeAPI()
    spec = {"domain": {"memory": {"guest": "1Gi"}, "devices": {"disks": [ROOT], "rng": {}}}}
    await api.put(VMS, {"metadata": {"name": "web", "namespace": "default"}, "spec": spec})
    return api


@pytest.fixture
async def access(api: FakeAPI) -> AsyncIterator[Access]:
    async with api.serving() as config:
        yield Access(server=config.server, namespace="default")


async def run(access: Access, *arguments: str) -> str:
    return await volumes.edit(access, flags.parse(list(arguments)))


def disks(api: FakeAPI) -> list[dict[str, Any]]:
    domain = api.get(VMS, "default", "web")["spec"]["domain"]
    assert (domain["memory"], domain["devices"]["rng"]) == ({"guest": "1Gi"}, {})
    found: list[dict[str, Any]] = domain["devices"]["disks"]
    return found


async def test_volumes_are_added_and_removed(api: FakeAPI, access: Access) -> None:
    told = await run(access, "addvolume", "vm/web", "--claim", "my.logs", "--create", "10Gi")
    assert told.endswith(
        "/web edited: its guest gets disk my-logs once PersistentVolumeClaim my.logs exists and is free: kubectl get vm web "
        f"-n {access.namespace} -o wide"
    )
    await run(access, "addvolume", "vm/web", "--claim", "data", "--disk-name", "db", "--serial", "DB-1", "--bus", "scsi")
    logs = {"name": "my-logs", "type": "PersistentVolumeClaim", "source": {"name": "my.logs", "create": {"size": "10Gi"}}}
    data = {"name": "db", "type": "PersistentVolumeClaim", "source": {"name": "data"}, "serial": "DB-1", "target": {"bus": "scsi"}}
    assert disks(api) == [ROOT, logs, data]
    await run(access, "removevolume", "web", "--claim", "my.logs")
    assert disks(api) == [{"name": "disk0", **ROOT}, data]
    await run(access, "removevolume", "web", "--disk-name", "db")
    assert disks(api) == [{"name": "disk0", **ROOT}]


async def test_medium_of_a_drive_is_inserted_and_ejected(api: FakeAPI, access: Access) -> None:
    tray = {"name": "tray", "device": "cdrom", "bootOrder": 1}
    vm = api.get(VMS, "default", "web")
    vm["spec"]["domain"]["devices"]["disks"].append(tray)
    await api.put(VMS, vm)
    await run(access, "addvolume", "web", "--claim", "installer", "--disk-name", "tray")
    assert disks(api) == [ROOT, {**tray, "type": "PersistentVolumeClaim", "source": {"name": "installer"}}]
    with pytest.raises(Failure, match="has a disk tray already"):
        await run(access, "addvolume", "web", "--claim", "other", "--disk-name", "tray")
    await run(access, "removevolume", "web", "--claim", "installer")
    assert disks(api) == [{"name": "disk0", **ROOT}, tray]
    with pytest.raises(Failure, match="has a disk tray already"):
        await run(access, "addvolume", "web", "--claim", "installer", "--disk-name", "tray", "--bus", "scsi")
    await run(access, "removevolume", "web", "--disk-name", "tray")
    assert disks(api) == [{"name": "disk0", **ROOT}]


@pytest.mark.parametrize(
    ("phase", "runs", "told"),
    [
        ("Running", [ROOT, DATA], ": the guest loses the disk when it gives it back, at the latest at its next start"),
        ("Running", [ROOT], ": the guest did not have it yet"),
        ("Stopped", [ROOT], ""),
    ],
)
async def test_removal_says_what_it_means_for_the_guest(
    api: FakeAPI, access: Access, phase: str, runs: list[dict[str, Any]], told: str
) -> None:
    await run(access, "addvolume", "web", "--claim", "data")
    status = {"phase": phase, "running": {"generation": 1, "domain": {"devices": {"disks": runs}}}}
    await api.put(VMS, {**api.get(VMS, "default", "web"), "status": status})
    assert await run(access, "removevolume", "web", "--claim", "data") == f"virtualmachine.kubevirt.io/web edited{told}"
    again = "the guest of virtual machine web has not released disk data yet" if len(runs) == 2 else "virtual machine web has no such disk"
    with pytest.raises(Failure, match=again):
        await run(access, "removevolume", "web", "--claim", "data")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("addvolume", "web", "--claim", "x", "--disk-name", "disk0"), "has a disk disk0 already"),
        (("addvolume", "web", "--claim", "Root"), "PersistentVolumeClaim Root is already disk disk0 of virtual machine web"),
        (("removevolume", "web", "--claim", "x"), "virtual machine web has no such disk; its disks: disk0"),
        (("removevolume", "web"), "name the disk by --claim or --disk-name"),
        (("removevolume", "none", "--claim", "root"), '"none" not found'),
    ],
)
async def test_unclear_or_impossible_edits_are_errors(api: FakeAPI, access: Access, arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(Failure, match=message):
        await run(access, *arguments)
    assert disks(api) == [ROOT]


async def test_edit_is_repeated_when_the_machine_changed_meanwhile(api: FakeAPI, access: Access) -> None:
    edited = 0

    def with_another_writer(vm: dict[str, Any]) -> dict[str, Any]:
        nonlocal edited
        edited += 1
        stale = {**vm, "metadata": {**vm["metadata"], "resourceVersion": "1"}} if edited == 1 else vm
        return volumes.with_disk(stale, volumes.disk_of("data", None, None, None, None))

    await api.put(VMS, {**api.get(VMS, "default", "web"), "status": {"phase": "Running"}})
    await volumes._edit(access, "web", with_another_writer)
    assert edited == 2
    assert [each["source"]["name"] for each in disks(api)] == ["root", "data"]


async def test_warnings_of_the_server_are_printed(api: FakeAPI, access: Access, capsys: pytest.CaptureFixture[str]) -> None:
    told = {"Warning": '299 - "spec.domain.devices.disks[data] (added): takes effect at its next start"'}
    api.refusals = [web.json_response(api.get(VMS, "default", "web")), web.json_response({}, headers=told)]
    await run(access, "addvolume", "web", "--claim", "data", "--bus", "scsi")
    assert capsys.readouterr().err == "Warning: spec.domain.devices.disks[data] (added): takes effect at its next start\n"
