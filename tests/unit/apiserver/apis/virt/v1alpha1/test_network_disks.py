from __future__ import annotations

from typing import Any

import pytest

from apiserver.apis.virt.hardware import disks
from tests.unit.apiserver.apis.virt.v1alpha1.test_bounds import errors

NBD = {"host": "nbd.example"}


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
        ("NBD", {"name": "claim"}, "name"),
        ("NBD", {"sizeLimit": "1Gi"}, "sizeLimit"),
        ("NBD", {"ephemeral": True}, "ephemeral"),
    ],
    ids=str,
)
def test_what_names_no_server_is_told_with_its_place(kind: str, wrong: dict[str, Any], field: str) -> None:
    assert places(a_machine(kind, {**NBD, **wrong})) == [f"devices.disks[0].source.{field}"]


def test_fields_of_servers_are_of_their_types_alone() -> None:
    assert places(a_machine("Image", {"reference": "a", "host": "b"})) == ["devices.disks[0].source.host"]


def test_how_files_are_waited_for_is_no_matter_of_a_server() -> None:
    assert places(a_machine("NBD", NBD, driver={"io": "threads"})) == ["devices.disks[0].driver.io"]
    assert places(a_machine("NBD", NBD, driver={"cache": "writeback", "errorPolicy": "report"})) == []


def test_defaults_are_written_into_the_disk() -> None:
    assert disks.defaulted(a_machine("NBD", NBD))[0]["source"] == {"host": "nbd.example", "port": 10809}
