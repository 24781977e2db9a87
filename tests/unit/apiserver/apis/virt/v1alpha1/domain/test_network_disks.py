from __future__ import annotations

from typing import Any

import pytest

from apiserver.apis.virt.hardware import disks, network_disks
from tests.unit.apiserver.apis.virt.v1alpha1.test_bounds import errors

NBD = {"host": "nbd.example"}
ISCSI = {"targetPortal": "iscsi.example", "iqn": "iqn.2026-01.example:vms"}
RBD = {"monitors": ["192.0.2.1", "ceph.example:3300"], "image": "vm-1"}
NFS = {"host": "nfs.example", "path": "/vms/disk.img"}
GIVEN: dict[str, dict[str, Any]] = {"NBD": NBD, "ISCSI": ISCSI, "NFS": NFS, "RBD": RBD}


def places(domain: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys(each.split(": ")[0].removeprefix("spec.domain.") for each in errors(domain)))


def a_machine(kind: str, source: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"devices": {"disks": [{"type": kind, "source": source, **fields}]}}


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("NBD", NBD),
        ("NBD", {"host": "192.0.2.1", "port": 65535, "export": "a"}),
        ("NBD", {"host": "2001:db8::1", "port": 1, "export": "pool/vm-1@snapshot:2+3=~_."}),
        ("NBD", {"host": "nbd", "export": "e" * 255}),
        ("NBD", {**NBD, "tlsSecretRef": {"name": "certificates"}}),
        ("NBD", {**NBD, "tlsSecretRef": {"name": "certificates"}, "tlsHostname": "2001:db8::1"}),
        ("RBD", RBD),
        ("RBD", {**RBD, "pool": "p_1.a-b", "user": "vms", "secretRef": {"name": "key"}}),
        ("RBD", {"monitors": [f"[2001:db8::{each}]:6789" for each in range(16)], "image": "i" * 96}),
        ("NFS", NFS),
        ("NFS", {"host": "2001:db8::1", "path": "/a b/Größe,1=2", "identity": {"user": 0, "group": 2147483647}}),
        ("NFS", {"host": "nfs", "path": f"/{'a' * 255}" * 3 + "/" + "b" * 255}),
        ("ISCSI", {**ISCSI, "secretRef": {"name": "chap"}}),
        ("ISCSI", {"targetPortal": "192.0.2.1:65535", "iqn": "eui.02004567A425678D", "lun": 255}),
        ("ISCSI", {"targetPortal": "[2001:db8::1]", "iqn": "naa.52004567BA64678D", "lun": 0}),
        ("ISCSI", {"targetPortal": "[2001:db8::1]:1", "iqn": "iqn.2026-01.example", "initiatorName": "iqn.2026-01.example:a:b_c.d-E"}),
    ],
    ids=str,
)
def test_servers_that_can_be_named(kind: str, source: dict[str, Any]) -> None:
    assert places(a_machine(kind, source)) == []


@pytest.mark.parametrize(
    ("kind", "wrong", "field"),
    [
        ("NBD", {"host": ""}, "host"),
        ("NBD", {"host": None}, "host"),
        ("NBD", {"host": "a,server.port=1"}, "host"),
        ("NBD", {"host": "[2001:db8::1]"}, "host"),
        ("NBD", {"host": "fe80::1%eth0"}, "host"),
        ("NBD", {"host": "/run/socket"}, "host"),
        ("NBD", {"host": "a" * 254}, "host"),
        ("NBD", {"port": 0}, "port"),
        ("NBD", {"port": 65536}, "port"),
        ("NBD", {"export": ""}, "export"),
        ("NBD", {"export": "e" * 256}, "export"),
        ("NBD", {"export": "a b"}, "export"),
        ("NBD", {"export": 'a","b":"'}, "export"),
        ("NBD", {"export": "ä"}, "export"),
        ("NBD", {"export": "a\n"}, "export"),
        ("ISCSI", {"targetPortal": None}, "targetPortal"),
        ("ISCSI", {"targetPortal": "a:0"}, "targetPortal"),
        ("ISCSI", {"targetPortal": "a:65536"}, "targetPortal"),
        ("ISCSI", {"targetPortal": "2001:db8::1"}, "targetPortal"),
        ("ISCSI", {"targetPortal": "[192.0.2.1]"}, "targetPortal"),
        ("ISCSI", {"targetPortal": "a b"}, "targetPortal"),
        ("ISCSI", {"targetPortal": "a/b"}, "targetPortal"),
        ("ISCSI", {"iqn": None}, "iqn"),
        ("ISCSI", {"iqn": "iqn.2026-01.example:a/1"}, "iqn"),
        ("ISCSI", {"iqn": "iqn.2026-01.example:" + "a" * 204}, "iqn"),
        ("ISCSI", {"iqn": "disk"}, "iqn"),
        ("ISCSI", {"initiatorName": ""}, "initiatorName"),
        ("ISCSI", {"initiatorName": "iqn.2026-01.example:a,b=c"}, "initiatorName"),
        ("ISCSI", {"lun": -1}, "lun"),
        ("ISCSI", {"lun": 256}, "lun"),
        ("ISCSI", {"host": "a"}, "host"),
        ("ISCSI", {"secretRef": {"name": ""}}, "secretRef.name"),
        ("ISCSI", {"secretRef": {"name": "A_b"}}, "secretRef.name"),
        ("NBD", {"secretRef": {"name": "a"}}, "secretRef"),
        ("NBD", {"tlsSecretRef": {"name": ""}}, "tlsSecretRef.name"),
        ("NBD", {"tlsSecretRef": {"name": "A_b"}}, "tlsSecretRef.name"),
        ("NBD", {"tlsHostname": "nbd.example"}, "tlsHostname"),
        ("NBD", {"tlsSecretRef": {"name": "a"}, "tlsHostname": ""}, "tlsHostname"),
        ("NBD", {"tlsSecretRef": {"name": "a"}, "tlsHostname": "a,b"}, "tlsHostname"),
        ("ISCSI", {"tlsSecretRef": {"name": "a"}}, "tlsSecretRef"),
        ("NFS", {"host": ""}, "host"),
        ("NFS", {"host": "a/b"}, "host"),
        ("NFS", {"path": None}, "path"),
        ("NFS", {"path": "/disk.img"}, "path"),
        ("NFS", {"path": "vms/disk.img"}, "path"),
        ("NFS", {"path": "/vms/../disk.img"}, "path"),
        ("NFS", {"path": "/vms/"}, "path"),
        ("NFS", {"path": "/vms//disk.img"}, "path"),
        ("NFS", {"path": "/vms/disk\n.img"}, "path"),
        ("NFS", {"path": f"/{'a' * 205}" * 5}, "path"),
        ("NFS", {"path": "/vms/" + "b" * 256}, "path"),
        ("NFS", {"path": "/vms/" + "ö" * 128}, "path"),
        ("NFS", {"identity": {"user": -1, "group": 0}}, "identity.user"),
        ("NFS", {"identity": {"user": 0, "group": -1}}, "identity.group"),
        ("NFS", {"port": 2049}, "port"),
        ("RBD", {"monitors": []}, "monitors"),
        ("RBD", {"monitors": None}, "monitors"),
        ("RBD", {"monitors": ["a"] * 17}, "monitors"),
        ("RBD", {"monitors": ["a", "b;c"]}, "monitors[1]"),
        ("RBD", {"monitors": ["2001:db8::1"]}, "monitors[0]"),
        ("RBD", {"image": None}, "image"),
        ("RBD", {"image": "a/b"}, "image"),
        ("RBD", {"image": "a@snapshot"}, "image"),
        ("RBD", {"image": "a" * 97}, "image"),
        ("RBD", {"pool": "a:b=c"}, "pool"),
        ("RBD", {"pool": ""}, "pool"),
        ("RBD", {"user": "admin"}, "user"),
        ("RBD", {"user": "a b", "secretRef": {"name": "key"}}, "user"),
        ("RBD", {"secretRef": {"name": ""}}, "secretRef.name"),
        ("RBD", {"host": "a"}, "host"),
        ("NFS", {"secretRef": {"name": "a"}}, "secretRef"),
        ("NBD", {"path": "/a/b"}, "path"),
        ("NBD", {"name": "claim"}, "name"),
        ("NBD", {"sizeLimit": "1Gi"}, "sizeLimit"),
        ("NBD", {"ephemeral": True}, "ephemeral"),
    ],
    ids=str,
)
def test_missing_server_fields_are_reported_with_their_path(kind: str, wrong: dict[str, Any], field: str) -> None:
    assert places(a_machine(kind, {**GIVEN[kind], **wrong})) == [f"devices.disks[0].source.{field}"]


@pytest.mark.parametrize(
    ("kind", "missing"), [("NBD", ["host"]), ("ISCSI", ["targetPortal", "iqn"]), ("NFS", ["host", "path"]), ("RBD", ["monitors", "image"])]
)
@pytest.mark.parametrize("given", [{}, {"source": {}}], ids=["no source", "an empty one"])
def test_a_disk_without_a_source_is_told_what_it_lacks(kind: str, missing: list[str], given: dict[str, Any]) -> None:
    assert places({"devices": {"disks": [{"type": kind, **given}]}}) == [f"devices.disks[0].source.{field}" for field in missing]


def test_the_certificates_of_a_machine_are_those_of_one_secret() -> None:
    named = ("", "a", "b", "a", "c", "")
    disks = [
        {"type": "NBD", "source": {**NBD, "export": f"e{position}"} | ({"tlsSecretRef": {"name": name}} if name else {})}
        for position, name in enumerate(named)
    ]
    assert places({"devices": {"disks": disks}}) == [f"devices.disks[{position}].source.tlsSecretRef.name" for position in (2, 4)]


def test_fields_of_servers_are_of_their_types_alone() -> None:
    assert places(a_machine("Image", {"reference": "a", "host": "b"})) == ["devices.disks[0].source.host"]


def test_how_files_are_waited_for_is_no_matter_of_a_server() -> None:
    assert places(a_machine("NBD", NBD, driver={"io": "threads"})) == ["devices.disks[0].driver.io"]
    assert places(a_machine("NBD", NBD, driver={"cache": "writeback", "errorPolicy": "report"})) == []


def test_only_virtio_is_allowed_for_nfs_disks_that_qemu_copies() -> None:
    for bus, wrong in (("virtio", []), ("scsi", ["devices.disks[0].target.bus"])):
        assert places(a_machine("NFS", NFS, target={"bus": bus})) == wrong
    assert places(a_machine("NFS", NFS, target={"bus": "scsi"}, readOnly=True)) == []
    assert places(a_machine("NFS", NFS, device="cdrom")) == []


def test_defaults_are_written_into_the_disk() -> None:
    assert disks.defaulted(a_machine("NBD", NBD))[0]["source"] == {"host": "nbd.example", "port": 10809}


def test_two_spellings_of_an_address_are_one_server() -> None:
    sources = [{"host": "2001:db8::1"}, {"host": "2001:DB8:0:0:0:0:0:1"}, {"host": "2001:db8::2"}]
    disks = [{"type": "NBD", "source": each} for each in sources]
    assert places({"devices": {"disks": disks}}) == ["devices.disks[1].source"]


@pytest.mark.parametrize("host", ["nbd.example", "NBD.Example", "nbd.example.", "NBD.EXAMPLE."])
def test_spellings_of_a_name_are_one_server(host: str) -> None:
    assert network_disks.identity({"type": "NBD", "source": {**NBD, "host": host}}) == network_disks.identity(
        {"type": "NBD", "source": NBD}
    )


@pytest.mark.parametrize(
    ("kind", "same", "other"),
    [
        ("NBD", {"host": "NBD.example".lower(), "port": 10809}, {"export": "b"}),
        ("ISCSI", {"targetPortal": "192.0.2.1", "iqn": "iqn.2026-01.example:vms", "lun": 0}, {"lun": 1}),
        ("RBD", {**RBD, "monitors": RBD["monitors"][::-1], "pool": "rbd"}, {"pool": "other"}),
        ("RBD", {**RBD, "monitors": ["[::ffff:192.0.2.1]:6789", "ceph.example:3300", "192.0.2.1"]}, {"image": "vm-2"}),
        ("NFS", {**NFS, "identity": {"user": 1, "group": 1}}, {"path": "/vms/other.img"}),
    ],
)
def test_identical_network_disks_are_refused_unless_read_only(kind: str, same: dict[str, Any], other: dict[str, Any]) -> None:
    def both(*, read_only: bool, **changed: Any) -> list[str]:
        disks = [
            {"type": kind, "source": GIVEN[kind], "readOnly": True},
            {"type": kind, "source": {**same, **changed}, "readOnly": read_only},
        ]
        return places({"devices": {"disks": disks}})

    assert both(read_only=False) == ["devices.disks[1].source"]
    assert both(read_only=True) == both(read_only=False, **other) == []
