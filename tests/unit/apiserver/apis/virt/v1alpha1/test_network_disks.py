from __future__ import annotations

from typing import Any

import pytest

from apiserver.apis.virt.hardware import disks
from tests.unit.apiserver.apis.virt.v1alpha1.test_bounds import errors

NBD = {"host": "nbd.example"}
ISCSI = {"targetPortal": "iscsi.example", "iqn": "iqn.2026-01.example:vms"}
GIVEN: dict[str, dict[str, Any]] = {"NBD": NBD, "ISCSI": ISCSI}


def places(domain: dict[str, Any]) -> list[str]:
    """Return the fields that are wrong, each once."""
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
        ("NBD", {"name": "claim"}, "name"),
        ("NBD", {"sizeLimit": "1Gi"}, "sizeLimit"),
        ("NBD", {"ephemeral": True}, "ephemeral"),
    ],
    ids=str,
)
def test_what_names_no_server_is_told_with_its_place(kind: str, wrong: dict[str, Any], field: str) -> None:
    assert places(a_machine(kind, {**GIVEN[kind], **wrong})) == [f"devices.disks[0].source.{field}"]


def test_fields_of_servers_are_of_their_types_alone() -> None:
    assert places(a_machine("Image", {"reference": "a", "host": "b"})) == ["devices.disks[0].source.host"]


def test_how_files_are_waited_for_is_no_matter_of_a_server() -> None:
    assert places(a_machine("NBD", NBD, driver={"io": "threads"})) == ["devices.disks[0].driver.io"]
    assert places(a_machine("NBD", NBD, driver={"cache": "writeback", "errorPolicy": "report"})) == []


def test_defaults_are_written_into_the_disk() -> None:
    assert disks.defaulted(a_machine("NBD", NBD))[0]["source"] == {"host": "nbd.example", "port": 10809}


@pytest.mark.parametrize(
    ("kind", "same", "other"),
    [
        ("NBD", {"host": "NBD.example".lower(), "port": 10809}, {"export": "b"}),
        ("ISCSI", {"targetPortal": "192.0.2.1", "iqn": "iqn.2026-01.example:vms", "lun": 0}, {"lun": 1}),
    ],
)
def test_what_is_surely_one_disk_is_none_of_two_of_a_machine_that_writes_to_it(
    kind: str, same: dict[str, Any], other: dict[str, Any]
) -> None:
    def both(*, read_only: bool, **changed: Any) -> list[str]:
        disks = [
            {"type": kind, "source": GIVEN[kind], "readOnly": True},
            {"type": kind, "source": {**same, **changed}, "readOnly": read_only},
        ]
        return places({"devices": {"disks": disks}})

    assert both(read_only=False) == ["devices.disks[1].source"]
    assert both(read_only=True) == both(read_only=False, **other) == []
