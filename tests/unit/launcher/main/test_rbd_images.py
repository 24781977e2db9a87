"""Host tests use real Ceph clusters."""

from __future__ import annotations

import json
from typing import Any

import pytest

from launcher.main.disks import rbd_images
from launcher.main.disks.made_disks import SourceUnusable
from launcher.main.programs.children import Children
from tests.unit.launcher.main.test_disk_certificates import OPEN, Commands

IMAGE: dict[str, Any] = {"name": "data", "type": "RBD", "source": {"monitors": ["192.0.2.1", "[2001:db8::1]:3300"], "image": "vm-1"}}
KEY: dict[str, Any] = {**IMAGE, "source": {**IMAGE["source"], "pool": "vms", "secretRef": {"name": "key"}}}


async def look(*disks: dict[str, Any], children: Children, seconds: float = rbd_images.SECONDS) -> None:
    await rbd_images.look(children, {"devices": {"disks": list(disks)}}, seconds)


async def test_each_image_is_opened_as_qemu_will_open_it() -> None:
    commands = Commands()
    await look(OPEN, IMAGE, KEY, {**KEY, "source": {**KEY["source"], "user": "vms"}}, children=commands)
    asked = [json.loads(each.removeprefix("json:"))["file"] for each in commands.asked]
    monitors = [{"host": "192.0.2.1", "port": "6789"}, {"host": "2001:db8::1", "port": "3300"}]
    image = {"driver": "rbd", "pool": "rbd", "image": "vm-1", "server": monitors}
    login = {"auth-client-required": ["cephx"], "key-secret": "key"}
    assert asked == [
        {**image, "auth-client-required": ["none"]},
        {**image, "pool": "vms", "user": "admin", **login},
        {**image, "pool": "vms", "user": "vms", **login},
    ]


async def test_unreadable_image_is_reported_with_its_disk() -> None:
    for commands, words in (
        (Commands("Could not open '{place}': error reading header:\nnone"), "its image: error reading header: none"),
        (
            Commands(hangs=True),
            "its image was not opened within 0.01 s: check the key of the Ceph user, and whether the OSDs answer",
        ),
    ):
        with pytest.raises(SourceUnusable) as told:
            await look(KEY, children=commands, seconds=0.01)
        assert str(told.value) == f"disk 'data': {words}"
