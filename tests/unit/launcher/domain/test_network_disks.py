from __future__ import annotations

from typing import Any
from xml.etree.ElementTree import Element

import pytest

from apiserver.apis.virt.hardware import disks
from launcher.domain import migratability, network_disks
from launcher.domain.values import InvalidSpecification

NBD = {"host": "nbd.example"}
RBD = {"monitors": ["a"], "pool": "rbd", "image": "vm-1", "secretRef": {"name": "key"}}
NFS = {"host": "nfs.example", "path": "/vms/disk.img", "identity": {"user": 1, "group": 2}}
GIVEN: dict[str, dict[str, Any]] = {
    "NBD": NBD,
    "NFS": NFS,
    "RBD": RBD,
    "ISCSI": {"targetPortal": "iscsi.example", "iqn": "iqn.2026-01.example:vms"},
}


def source(kind: str, given: dict[str, Any]) -> None:
    (disk,) = disks.defaulted({"devices": {"disks": [{"name": "a", "type": kind, "source": given}]}})
    network_disks.append_source(Element("disk"), disk)


@pytest.mark.parametrize(
    ("kind", "wrong", "field"),
    [
        ("NBD", {"host": "a,b"}, "host"),
        ("NBD", {"host": 7}, "host"),
        ("NBD", {"host": None}, "host"),
        ("NBD", {"port": "1"}, "port"),
        ("NBD", {"port": 65536}, "port"),
        ("NBD", {"export": "a b"}, "export"),
        ("NBD", {"tlsSecretRef": {"name": "c"}, "tlsHostname": "a,b"}, "tlsHostname"),
        ("NBD", {"export": ["a"]}, "export"),
        ("RBD", {"monitors": []}, "monitors"),
        ("RBD", {"monitors": "a"}, "monitors"),
        ("RBD", {"monitors": ["a;b"]}, "monitors"),
        ("RBD", {"monitors": [7]}, "monitors"),
        ("RBD", {"pool": "a/b"}, "pool"),
        ("RBD", {"image": None}, "image"),
        ("RBD", {"user": "a:b"}, "user"),
        ("NFS", {"host": "a/b"}, "host"),
        ("NFS", {"path": "/a"}, "path"),
        ("NFS", {"path": ["/a/b"]}, "path"),
        ("NFS", {"path": "/a/../b"}, "path"),
        ("NFS", {"identity": {"user": "root", "group": 0}}, r"identity\.user"),
        ("NFS", {"identity": {"user": 0}}, r"identity\.group"),
        ("ISCSI", {"targetPortal": "a,b"}, "targetPortal"),
        ("ISCSI", {"targetPortal": None}, "targetPortal"),
        ("ISCSI", {"iqn": "iqn.2026-01.example:a/b"}, "iqn"),
        ("ISCSI", {"iqn": 7}, "iqn"),
        ("ISCSI", {"lun": "0"}, "lun"),
        ("ISCSI", {"initiatorName": "a"}, "initiatorName"),
    ],
    ids=str,
)
def test_hostile_values_are_refused(kind: str, wrong: dict[str, Any], field: str) -> None:
    source(kind, GIVEN[kind])
    with pytest.raises(InvalidSpecification, match=rf"^devices\.disks\[a\]\.source\.{field}: "):
        source(kind, {**GIVEN[kind], **wrong})


def test_a_disk_of_a_server_does_not_keep_a_guest_from_migrating() -> None:
    assert migratability.not_migratable({"devices": {"disks": [{"type": "NBD", "source": NBD}]}}) == ""


@pytest.mark.parametrize(
    "said",
    [
        '-blockdev {"user":"initiator-7","password-secret":"x"}: iSCSI: Failed',
        'a "user":"initiator-7\nof another line',
        '"user":"initiator-7',
    ],
)
def test_qemu_errors_are_shown_without_user_names(said: str) -> None:
    told = network_disks.without_users(said)
    assert "initiator-7" not in told
    assert told.replace("…", "initiator-7").rstrip('"') == said.replace("initiator-7\n", 'initiator-7"\n').rstrip('"')
