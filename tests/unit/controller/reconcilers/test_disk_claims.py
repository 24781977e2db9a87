from __future__ import annotations

import pytest

from apiserver.apis.meta.objects import Object
from controller.reconcilers import disk_claims
from tests.unit.controller.reconcilers.builders import a_vm


def contested_by(vm: Object, other: Object) -> tuple[str, ...]:
    return disk_claims.contested(disk_claims.claimed(vm), disk_claims.claimed(other))


def with_disks(**read_only: bool) -> dict[str, object]:
    disks = [
        {"name": claim, "type": "PersistentVolumeClaim", "source": {"name": claim.upper()}, "readOnly": value}
        for claim, value in read_only.items()
    ]
    return a_vm(domain={"devices": {"disks": disks}})


def with_scratch(claim: str) -> dict[str, object]:
    disk = {"name": "scratch", "type": "PersistentVolumeClaim", "source": {"name": claim, "ephemeral": True}}
    return a_vm(domain={"devices": {"disks": [disk]}})


def with_shared(claim: str) -> dict[str, object]:
    return a_vm(domain={"devices": {"disks": [{"type": "PersistentVolumeClaim", "source": {"name": claim}, "shareable": True}]}})


def with_state(claim: str, uid: str = "", *, uuid: str = "") -> dict[str, object]:
    firmware = {"persistentState": {"claimName": claim}, **({"uuid": uuid} if uuid else {})}
    vm = a_vm(domain={"firmware": firmware})
    return {**vm, "metadata": {**vm["metadata"], "uid": uid}}


@pytest.mark.parametrize(
    ("mine", "theirs", "contested"),
    [
        (with_disks(root=False), with_disks(root=False), ("root",)),
        (with_disks(root=True), with_disks(root=False), ("root",)),
        (with_disks(root=False), with_disks(root=True), ("root",)),
        (with_disks(root=True), with_disks(root=True), ()),
        (with_disks(root=False, data=False), with_disks(other=False, data=True), ("data",)),
        (with_disks(root=False), with_disks(data=False), ()),
        (with_scratch("root"), with_scratch("root"), ()),
        (with_shared("root"), with_shared("root"), ()),
        (with_shared("root"), with_disks(root=True), ("root",)),
        (with_disks(root=False), with_shared("root"), ("root",)),
        (with_scratch("root"), with_disks(root=False), ("root",)),
    ],
)
def test_claim_is_contested_when_one_of_two_machines_writes(
    mine: dict[str, object], theirs: dict[str, object], contested: tuple[str, ...]
) -> None:
    assert contested_by(mine, theirs) == contested


def test_a_file_of_a_node_is_contested_unless_both_only_read_it() -> None:
    def on_files(*, read_only: bool, path: str = "/srv/a") -> dict[str, object]:
        of_node = {"name": "a", "type": "HostDisk", "source": {"path": path}, "readOnly": read_only}
        blank = {"name": "b", "type": "EmptyDisk", "source": {"size": "1Gi"}}
        return a_vm(domain={"devices": {"disks": [of_node, blank]}})

    reads, writes = on_files(read_only=True), on_files(read_only=False)
    assert disk_claims.files_of(writes) == disk_claims.files_of(reads) == ("/srv/a",)
    assert disk_claims.contested_files(reads, reads) == disk_claims.contested_files(reads, on_files(read_only=False, path="/srv/b")) == ()
    assert [disk_claims.contested_files(*both) for both in ((reads, writes), (writes, reads), (writes, writes))] == [("/srv/a",)] * 3


def test_network_disk_is_contested_unless_both_read_or_share() -> None:
    def on_server(**said: object) -> Object:
        source = {"host": "a.example", "path": "/vms/a.img"}
        return a_vm(domain={"devices": {"disks": [{"name": "a", "type": "NFS", "source": source, **said}]}})

    writes, reads, shares = on_server(), on_server(readOnly=True), on_server(shareable=True)
    pairs = [(mine, theirs) for mine in (writes, reads, shares) for theirs in (writes, reads, shares)]
    fine = [pair for pair in pairs if not disk_claims.servers_in_use(pair[0], [pair[1]])]
    assert fine == [(reads, reads), (shares, shares)]
    assert disk_claims.servers_in_use(writes, [reads]) == (("file /vms/a.img of a.example", reads["metadata"]["name"]),)
    assert disk_claims.servers_of(writes) == disk_claims.servers_of(reads) != ()
    assert disk_claims.servers_in_use(writes, [a_vm()]) == ()
    assert disk_claims.servers_of(a_vm()) == ()


def with_files(claim: str, *, read_only: bool = False) -> dict[str, object]:
    filesystem = {"name": "data", "type": "PersistentVolumeClaim", "source": {"name": claim.upper()}, "readOnly": read_only}
    config = {"name": "settings", "type": "ConfigMap", "source": {"name": "root"}}
    return a_vm(domain={"devices": {"filesystems": [filesystem, config]}})


@pytest.mark.parametrize(
    ("mine", "theirs", "is_contested"),
    [
        (with_files("root"), with_files("root"), False),
        (with_files("root"), with_disks(root=True), True),
        (with_files("root", read_only=True), with_disks(root=False), True),
        (with_files("root", read_only=True), with_disks(root=True), False),
        (with_files("root"), with_scratch("root"), True),
        (with_files("data"), with_disks(root=False), False),
        (with_files("root", read_only=True), with_state("root"), True),
        (with_files("data"), with_state("root"), False),
    ],
)
def test_shared_files_exclude_the_claims_disk_and_state(mine: dict[str, object], theirs: dict[str, object], *, is_contested: bool) -> None:
    assert contested_by(mine, theirs) == contested_by(theirs, mine) == (("root",) if is_contested else ())


def test_file_system_claim_must_have_file_system_mode() -> None:
    vm = with_files("shared")
    assert disk_claims.claims_of(vm) == ("shared",)
    assert disk_claims.filesystems_on_devices(vm, {"shared": {"spec": {"volumeMode": "Block"}}}) == ("shared",)
    assert disk_claims.filesystems_on_devices(vm, {"shared": {"spec": {"volumeMode": "Filesystem"}}}) == ()
    assert disk_claims.filesystems_on_devices(with_disks(shared=False), {"shared": {"spec": {"volumeMode": "Block"}}}) == ()


@pytest.mark.parametrize(
    ("mine", "theirs", "contested"),
    [
        (with_state("c", "1"), with_state("c", "2"), ()),
        (with_state("c", "1", uuid="A"), with_state("C", "2", uuid="a"), ("c",)),
        (with_state("c", "1", uuid="a"), with_state("d", "2", uuid="a"), ()),
        (with_state("c", "1", uuid="a"), with_disks(c=False), ()),
        (with_disks(), with_disks(), ()),
    ],
)
def test_machines_share_a_firmware_claim_but_no_directory(
    mine: dict[str, object], theirs: dict[str, object], contested: tuple[str, ...]
) -> None:
    assert contested_by(mine, theirs) == contested


def with_import(claim: str) -> dict[str, object]:
    source = {"name": claim, "import": {"http": {"url": "http://h/"}}}
    return a_vm(domain={"devices": {"disks": [{"type": "PersistentVolumeClaim", "device": "cdrom", "source": source}]}})


def test_import_counts_as_writing_to_the_claim() -> None:
    assert contested_by(with_import("root"), with_disks(root=True)) == ("root",)
    assert contested_by(with_disks(root=True), with_import("root")) == ("root",)


def test_a_claim_for_the_firmware_is_one_of_the_machine() -> None:
    vm = with_state("State")
    assert disk_claims.claims_of(vm) == disk_claims.missing(vm, {}) == ("state",)
    assert disk_claims.without_directory(vm, {"state": {"spec": {"volumeMode": "Block"}}}) == "state"
    assert disk_claims.without_directory(vm, {"state": {"spec": {"volumeMode": "Filesystem"}}}) == ""
    assert disk_claims.without_directory(with_disks(state=False), {"state": {"spec": {"volumeMode": "Block"}}}) == ""


def test_a_lun_needs_a_claim_that_is_a_device() -> None:
    vm = a_vm(domain={"devices": {"disks": [{"device": "lun", "type": "PersistentVolumeClaim", "source": {"name": "Raw"}}]}})
    assert disk_claims.luns_without_device(vm, {"raw": {"spec": {"volumeMode": "Block"}}}) == ()
    assert disk_claims.luns_without_device(vm, {"raw": {"spec": {"volumeMode": "Filesystem"}}}) == ("raw",)
    assert disk_claims.luns_without_device(with_disks(raw=False), {"raw": {"spec": {"volumeMode": "Filesystem"}}}) == ()
