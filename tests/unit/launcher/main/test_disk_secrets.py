from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from launcher.domain.network_disks import secret_uuid
from launcher.main.disks import disk_secrets
from launcher.main.disks.made_disks import SourceUnusable
from launcher.protocol import messages
from tests.unit.launcher.main.world import World

UNIT: dict[str, Any] = {
    "name": "unit",
    "type": "ISCSI",
    "source": {"targetPortal": "192.0.2.1", "iqn": "iqn.2026-01.example:vms", "secretRef": {"name": "chap"}},
}
OPEN: dict[str, Any] = {"name": "open", "type": "ISCSI", "source": {"targetPortal": "192.0.2.1", "iqn": "iqn.2026-01.example:open"}}
ARGUMENTS = f'user <auth><secret type="iscsi" uuid="{secret_uuid("unit")}" /></auth>'
SPECIFICATION: dict[str, Any] = {
    "memory": {"guest": "128Mi"},
    "devices": {"disks": [UNIT, OPEN]},
    "firmware": {"kernelBoot": {"container": {"kernelPath": "vmlinuz"}, "kernelArgs": ARGUMENTS}},
}
MACHINE = messages.Machine("default", "testvm", "u-1", SPECIFICATION, "qemu", (), 0.4)


@pytest.fixture
def secret(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, pod_directories: Callable[..., None]) -> Path:
    kernel = tmp_path_factory.mktemp("kernel")
    (kernel / "vmlinuz").touch()
    pod_directories(SOURCES=tmp_path / "sources", KERNEL_BOOT=kernel)
    now = tmp_path / "sources/unit/..now"
    now.mkdir(parents=True)
    (now.parent / "..data").symlink_to("..now")
    (now / "username").write_text("initiator-7")
    (now / "password").write_bytes(b"pass\xffword")
    return now


async def test_password_and_name_are_given_to_libvirt_only(world: World, secret: Path) -> None:
    assert secret.exists()
    world.network.ports = {3260}
    await world.domain.handle(messages.Sync(MACHINE))

    assert world.hypervisor.secrets == {secret_uuid("unit"): b"pass\xffword"}
    (given,) = world.hypervisor.created
    (auth,) = ET.fromstring(given).iterfind("devices/disk/source/auth")
    assert auth.get("username") == "initiator-7"
    assert given.count("initiator-7") == 1
    shown = await world.domain.reads["domainxml"]()
    assert ("initiator-7" in shown, "pass" in shown, secret_uuid("unit") in shown) == (False, False, True)
    logins = disk_secrets.logins(SPECIFICATION)
    assert ("initiator-7" in repr(logins), "pass\\xffword" in repr(logins)) == (False, False)


def test_each_disk_has_the_login_of_its_own(secret: Path) -> None:
    shutil.copytree(secret.parent, secret.parents[1] / "second", symlinks=True)
    (secret.parents[1] / "second" / "..now" / "username").write_text("initiator-8")
    disks = [OPEN, UNIT, {**UNIT, "name": "second"}]
    found = disk_secrets.logins({**SPECIFICATION, "devices": {"disks": disks}})
    assert [(each.disk, each.user) for each in found] == [("unit", "initiator-7"), ("second", "initiator-8")]


async def test_migration_target_knows_the_password_before_the_guest(world: World, secret: Path) -> None:
    world.network.ports = {3260}
    assert secret.exists()
    await world.domain.handle(messages.PrepareMigrationTarget("m1", MACHINE))
    assert world.hypervisor.secrets == {secret_uuid("unit"): b"pass\xffword"}


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("username", b"", "the user's name"),
        ("username", b"u" * 256, "the user's name"),
        ("username", b'a","b":"', "the user's name"),
        ("username", b"a\n", "the user's name"),
        ("password", b"", "the password"),
        ("password", b"p" * 256, "the password"),
        ("password", b"p" * 2000, "larger than"),
        ("password", None, "the password"),
    ],
)
def test_a_secret_that_is_no_login_is_told_without_its_content(secret: Path, file: str, content: bytes | None, words: str) -> None:
    (secret / file).unlink()
    if content is not None:
        (secret / file).write_bytes(content)
    with pytest.raises(SourceUnusable, match=rf"^disk 'unit': its Secret: .*{words}") as told:
        disk_secrets.logins(SPECIFICATION)
    assert not content or content.decode() not in str(told.value)


IMAGE: dict[str, Any] = {
    "name": "unit",
    "type": "RBD",
    "source": {"monitors": ["192.0.2.1"], "image": "vm-1", "user": "vms", "secretRef": {"name": "key"}},
}


async def test_ceph_key_is_given_to_libvirt_as_a_ceph_secret(world: World, secret: Path) -> None:
    world.network.ports = {3300, 6789}
    for file in secret.iterdir():
        file.unlink()
    (secret / "key").write_bytes(b"AP9zZWNyZXQ=\n")
    await world.domain.handle(messages.Sync(dataclasses.replace(MACHINE, domain={**SPECIFICATION, "devices": {"disks": [IMAGE]}})))
    uuid = secret_uuid("unit")
    assert (world.hypervisor.secrets, world.hypervisor.usages) == ({uuid: b"\x00\xffsecret"}, {uuid: "ceph"})
    (auth,) = ET.fromstring(world.hypervisor.created[0]).iterfind("devices/disk/source/auth")
    assert auth.get("username") == "vms"


@pytest.mark.parametrize("content", [b"", b"\n", b"no base64!", b"YQ", None])
def test_a_secret_that_is_no_key_is_told_without_its_content(secret: Path, content: bytes | None) -> None:
    for file in secret.iterdir():
        file.unlink()
    if content is not None:
        (secret / "key").write_bytes(content)
    with pytest.raises(SourceUnusable, match=r"^disk 'unit': its Secret: the key must be a Ceph key in base64$"):
        disk_secrets.logins({"devices": {"disks": [IMAGE]}})


def test_a_secret_that_is_not_mounted_is_told(secret: Path) -> None:
    (secret.parent / "..data").unlink()
    with pytest.raises(SourceUnusable, match=r"^disk 'unit': its Secret: it is not mounted"):
        disk_secrets.logins(SPECIFICATION)
    assert disk_secrets.logins({"devices": {"disks": [OPEN]}}) == ()
