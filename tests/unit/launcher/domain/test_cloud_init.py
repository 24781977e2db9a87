from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from apiserver.apis.virt.hardware.cloud_init import CONFIG_DRIVE, NO_CLOUD
from launcher.domain import cloud_init
from launcher.domain.values import InvalidSpecification

FACTS: dict[str, Any] = {"uid": "u-1", "hostname": "testvm", "keys": ["ssh-ed25519 A me"]}


def test_no_cloud_writes_empty_user_data_by_default() -> None:
    found = cloud_init.files(NO_CLOUD, {}, {}, FACTS)
    assert found.keys() == {"user-data", "meta-data"}
    assert found["user-data"] == b""
    expected = {"instance-id": "u-1", "local-hostname": "testvm", "public-keys": ["ssh-ed25519 A me"]}
    assert json.loads(found["meta-data"]) == expected


def test_a_config_drive_has_what_openstack_has() -> None:
    found = cloud_init.files(CONFIG_DRIVE, {}, {}, FACTS)
    assert found.keys() == {"openstack/latest/meta_data.json"}
    expected = {"uuid": "u-1", "name": "testvm", "hostname": "testvm", "public_keys": {"0": "ssh-ed25519 A me"}}
    assert json.loads(found["openstack/latest/meta_data.json"]) == expected


@pytest.mark.parametrize(
    ("kind", "network", "meta", "places"),
    [
        (NO_CLOUD, b"\xff\x00", b"theirs", ["user-data", "network-config", "meta-data"]),
        (
            CONFIG_DRIVE,
            b'{"links": []}',
            b'{"uuid": "u"}',
            ["openstack/latest/user_data", "openstack/latest/network_data.json", "openstack/latest/meta_data.json"],
        ),
    ],
)
def test_data_are_written_to_their_paths_from_every_source(kind: str, network: bytes, meta: bytes, places: list[str]) -> None:
    source = {"userData": "ü", "networkDataBase64": base64.b64encode(network).decode(), "metaDataSecretRef": {"name": "s"}}
    found = cloud_init.files(kind, source, {"metaData": meta}, FACTS)
    assert found == dict(zip(places, ["ü".encode(), network, meta], strict=True))


@pytest.mark.parametrize("datum", ["networkData", "metaData"])
@pytest.mark.parametrize("data", [b"version: 2\n", b"", b"[]", b"\xff"])
def test_a_config_drive_that_cloud_init_would_ignore_is_told(datum: str, data: bytes) -> None:
    with pytest.raises(InvalidSpecification, match=f"^{datum}: must be a JSON object"):
        cloud_init.files(CONFIG_DRIVE, {}, {datum: data}, FACTS)
    assert cloud_init.files(NO_CLOUD, {}, {datum: data}, FACTS)


def test_the_meta_data_of_the_same_machine_are_the_same_bytes() -> None:
    assert cloud_init.meta_data(NO_CLOUD, **FACTS) == cloud_init.meta_data(NO_CLOUD, **FACTS)
    assert cloud_init.meta_data(NO_CLOUD, **{**FACTS, "uid": "u-2"}) != cloud_init.meta_data(NO_CLOUD, **FACTS)


def test_invalid_base64_data_are_reported_without_the_data() -> None:
    with pytest.raises(InvalidSpecification, match=r"^userData: must be base64$"):
        cloud_init.files(NO_CLOUD, {"userDataBase64": "sesame!"}, {}, FACTS)


def test_every_line_of_every_value_is_a_key() -> None:
    secret = {"b": b"ssh-rsa B\n", "a": b"# mine\r\n\n  ssh-rsa A x\ty\r\nssh-rsa B\n"}
    assert cloud_init.public_keys(secret, "path") == ("ssh-rsa A x\ty", "ssh-rsa B")
    assert cloud_init.public_keys({}, "path") == ()


@pytest.mark.parametrize("line", [b"\xff", b"a\x00b", b"a\x1bb", b"x" * (cloud_init.MAX_KEY + 1), "a\u2028b".encode()])
def test_invalid_keys_are_reported_without_the_keys(line: bytes) -> None:
    with pytest.raises(InvalidSpecification) as refused:
        cloud_init.public_keys({"keys": b"ssh-rsa A\n" + line}, "spec.accessCredentials[0]")
    assert str(refused.value).startswith("spec.accessCredentials[0]: line 2 of the value of 'keys' in its Secret is not ")
    assert str(refused.value).isascii()
    assert len(str(refused.value)) < 120


def test_there_are_not_too_many_keys() -> None:
    keys = [f"ssh-rsa {number}" for number in range(cloud_init.MAX_KEYS)]
    assert cloud_init.counted([*keys, keys[0]], "path") == tuple(keys)
    with pytest.raises(InvalidSpecification, match="path: there are 65 public keys, more than 64"):
        cloud_init.public_keys({"keys": "\n".join([*keys, "ssh-rsa more"]).encode()}, "path")
