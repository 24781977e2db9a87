from __future__ import annotations

from typing import Any

import pytest

from launcher.domain import disk_caches, disks, document
from launcher.domain.definition import Definition
from launcher.domain.disk_origins import Found

CLAIM: dict[str, Any] = {"name": "root", "type": "PersistentVolumeClaim", "source": {"name": "c"}}
NBD: dict[str, Any] = {"name": "root", "type": "NBD", "source": {"host": "h", "export": "e"}}
BLANK: dict[str, Any] = {"name": "blank", "type": "EmptyDisk", "source": {"size": "1Gi"}}


def told(disk: dict[str, Any], **found: Any) -> str:
    domain = {"devices": {"disks": [BLANK, disk]}}
    xml = document.to_xml(Definition("default", "testvm", "u-1", domain, "qemu", found={"root": Found(**found)}))
    return disk_caches.not_migratable(xml, disks.names_by_target(domain), disk_caches.shared(domain))


@pytest.mark.parametrize("disk", [CLAIM, {**CLAIM, "driver": {"cache": "directsync"}}, {**CLAIM, "shareable": True}, NBD])
def test_a_disk_past_the_page_cache_moves(disk: dict[str, Any]) -> None:
    assert told(disk) == ""


def test_page_cached_disk_prevents_migration_with_the_reason() -> None:
    assert (
        told({**CLAIM, "driver": {"cache": "writeback"}})
        == "data of the disk 'root' may be only in the page cache of its node: cache is writeback"
    )
    assert told({**NBD, "driver": {"cache": "unsafe"}}).endswith("cache is unsafe")
    cannot = told(CLAIM, direct=False)
    assert cannot == (
        "data of the disk 'root' may be only in the page cache of its node: its file system does not support O_DIRECT; use other storage"
    )


@pytest.mark.parametrize(
    "disk",
    [
        {**CLAIM, "readOnly": True},
        {**CLAIM, "device": "cdrom"},
        {**CLAIM, "source": {"name": "c", "ephemeral": True}},
        {"name": "root", "device": "cdrom"},
    ],
)
def test_unwritten_or_copied_disks_allow_migration(disk: dict[str, Any]) -> None:
    assert disk_caches.shared({"devices": {"disks": [BLANK, disk]}}) == ()
    assert told(disk, direct=False) == ""
