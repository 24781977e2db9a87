from __future__ import annotations

from typing import Any

import pytest

from apiserver.apis.virt.spec import disk_uses
from apiserver.apis.virt.spec.disk_uses import Lock, Use

Disk = dict[str, Any]
IMPORT = {"http": {"url": "https://images.example/a.img"}}


def a_disk(**said: Any) -> dict[str, Any]:
    return {"type": "PersistentVolumeClaim", "source": {"name": "data", **said.pop("source", {})}, **said}


def held(uid: str = "u", node: str = "", **domain: Any) -> set[Lock]:
    firmware = {"firmware": domain.pop("firmware")} if "firmware" in domain else {}
    return set(disk_uses.locks({"devices": domain, **firmware}, uid, node))


@pytest.mark.parametrize(
    ("disk", "use"),
    [
        (a_disk(), "writes"),
        (a_disk(readOnly=True), "reads"),
        (a_disk(device="cdrom"), "reads"),
        (a_disk(shareable=True), "shares"),
        (a_disk(source={"ephemeral": True}), "reads"),
        (a_disk(readOnly=True, source={"import": IMPORT}), "writes"),
        (a_disk(shareable=True, source={"import": IMPORT}), "writes"),
    ],
)
def test_the_use_of_a_claim_follows_from_its_disk(disk: dict[str, Any], use: Use) -> None:
    assert disk_uses.uses({"devices": {"disks": [disk]}}) == {"data": use}
    assert held(disks=[disk]) == {Lock("disk/data", "" if use == "writes" else use)}


def test_other_disks_use_no_claim() -> None:
    image = {"type": "Image", "source": {"reference": "a"}}
    assert disk_uses.uses({"devices": {"disks": [image, {"device": "cdrom"}, {"type": "PersistentVolumeClaim"}]}}) == {}
    assert held(disks=[image]) == set()


@pytest.mark.parametrize(
    ("every", "strictest"), [(("writes", "reads"), "writes"), (("shares", "reads"), "shares"), (("writes", "shares"), "writes")]
)
def test_strictest_use_of_a_claim_counts(every: tuple[Use, Use], strictest: Use) -> None:
    said: dict[Use, dict[str, Any]] = {"writes": {}, "reads": {"readOnly": True}, "shares": {"shareable": True}}
    for uses in (every, every[::-1]):
        disks = [{"type": "PersistentVolumeClaim", "source": {"name": "data"}, **said[use]} for use in uses]
        assert disk_uses.uses({"devices": {"disks": disks}}) == {"data": strictest}


def test_writable_file_system_excludes_disks_and_firmware() -> None:
    files = {"type": "PersistentVolumeClaim", "source": {"name": "Files"}}
    assert held(filesystems=[files]) == {Lock("disk/files", "files"), Lock("files/files", "files")}
    assert held(filesystems=[{**files, "readOnly": True}]) == set()
    assert held(filesystems=[{"type": "ConfigMap", "source": {"name": "files"}}, {"type": "PersistentVolumeClaim"}]) == set()


def test_firmware_state_locks_its_directory_in_a_shared_claim() -> None:
    state = {"persistentState": {"claimName": "state"}}
    assert held("u1", firmware=state) == {Lock("files/state", "state"), Lock("state/state/u1", "")}
    assert held("u1", firmware={**state, "uuid": "AB"}) == {Lock("files/state", "state"), Lock("state/state/ab", "")}
    assert held("u1", firmware={"uuid": "ab"}) == set()


def test_a_file_of_a_node_is_held_on_that_node() -> None:
    disk = {"type": "HostDisk", "source": {"path": "/var/vms/a.img"}}
    name = f"host/n1/{disk_uses.digest('/var/vms/a.img')}"
    assert held(node="n1", disks=[disk]) == {Lock(name, "")}
    assert held(node="n1", disks=[{**disk, "readOnly": True}]) == {Lock(name, "reads")}
    assert held(node="n2", disks=[disk]) == {Lock(f"host/n2/{disk_uses.digest('/var/vms/a.img')}", "")}
    assert "/" not in disk_uses.digest("/var/vms/a.img") != disk_uses.digest("/var/vms/b.img")


NBD: Disk = {"type": "NBD", "source": {"host": "a.example", "export": "e"}}
ISCSI: Disk = {"type": "ISCSI", "source": {"targetPortal": "a.example", "iqn": "iqn.2026-01.example:a", "lun": 1}}
NFS: Disk = {"type": "NFS", "source": {"host": "192.0.2.1", "path": "/vms/a.img"}}
RBD: Disk = {"type": "RBD", "source": {"monitors": ["a.example", "b.example"], "image": "i"}}


@pytest.mark.parametrize(
    ("disk", "same", "other"),
    [
        (NBD, {"host": "A.example.", "port": 10809, "export": "e", "tlsSecretRef": {"name": "s"}}, {"host": "a.example", "export": "f"}),
        (ISCSI, {"targetPortal": "b.example:3261", "iqn": "iqn.2026-01.EXAMPLE:a", "lun": 1}, {**ISCSI["source"], "lun": 2}),
        (NFS, {"host": "::ffff:192.0.2.1", "path": "/vms/a.img", "identity": {"user": 1}}, {"host": "192.0.2.1", "path": "/vms/b.img"}),
        (RBD, {"monitors": ["b.example", "a.example:6789"], "pool": "rbd", "image": "i"}, {**RBD["source"], "pool": "p"}),
    ],
    ids=lambda each: str(each.get("type", "")),
)
def test_network_disk_lock_uses_its_identifying_fields(disk: Disk, same: Disk, other: Disk) -> None:
    (lock,) = held(disks=[disk])
    assert (lock.what.split("/")[0], len(lock.what.split("/")), lock.group) == ("server", 2, "")
    assert held(disks=[{**disk, "source": same}]) == {lock}
    assert {each.what for each in held(disks=[{**disk, "source": other}])} != {lock.what}
    assert held(disks=[{**disk, "readOnly": True}]) == held(disks=[{**disk, "device": "cdrom"}]) == {Lock(lock.what, "reads")}
    assert held(disks=[{**disk, "shareable": True}]) == {Lock(lock.what, "shares")}


def test_unnamed_network_disks_and_plugin_disks_take_no_lock() -> None:
    unnamed: list[Disk] = [{"type": each, "source": {}} for each in ("NBD", "ISCSI", "NFS", "RBD")]
    assert held(disks=[*unnamed, {"type": "RBD", "source": {"image": "i"}}]) == set()
    assert held(disks=[{"type": "Plugin", "source": {"plugin": "images", "options": {"image": "a"}}}]) == set()


def test_two_have_a_claim_at_once_where_both_read_or_both_share() -> None:
    found = {(mine, theirs) for mine in ("reads", "shares", "writes") for theirs in ("reads", "shares", "writes")}
    fine = {(mine, theirs) for mine, theirs in found if not disk_uses.clash(mine, theirs)}  # type: ignore[arg-type]  # they are words of Use
    assert fine == {("reads", "reads"), ("shares", "shares")}


def test_claim_of_images_excludes_writable_file_systems() -> None:
    assert disk_uses.locks({}, "u", image_claim="memory") == {Lock("files/memory", "state")}
    assert disk_uses.locks({}, "u") == set()
