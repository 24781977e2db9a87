from __future__ import annotations

from typing import Any

import pytest

from launcher.domain import copied_disks, migratability

DIGEST = "registry.example/a@sha256:" + "0123456789abcdef" * 4
BLANK: dict[str, Any] = {"name": "blank", "type": "EmptyDisk", "source": {"size": "1Gi"}}
CLAIM: dict[str, Any] = {"name": "claim", "type": "PersistentVolumeClaim", "source": {"name": "c"}}
EPHEMERAL: dict[str, Any] = {"name": "ephemeral", "type": "PersistentVolumeClaim", "source": {"name": "c", "ephemeral": True}}


def image(reference: str, **more: Any) -> dict[str, Any]:
    return {"name": "image", "type": "Image", "source": {"reference": reference}, **more}


def of(*disks: dict[str, Any]) -> dict[str, Any]:
    return {"devices": {"disks": list(disks)}}


def test_disks_that_exist_only_in_the_pod_are_copied() -> None:
    assert copied_disks.names(of(CLAIM, BLANK, EPHEMERAL, image("x"))) == ("blank", "ephemeral", "image")
    assert (
        copied_disks.names(of(CLAIM, {**EPHEMERAL, "readOnly": True}, image("x", readOnly=True), image("x", name="cd", device="cdrom")))
        == ()
    )


@pytest.mark.parametrize(
    ("disks", "expected"),
    [
        ((), True),
        ((BLANK, EPHEMERAL, CLAIM), True),
        ((image(DIGEST), BLANK), True),
        ((image(DIGEST[:-1]),), False),
        ((image(f"{DIGEST}x"),), False),
        ((image("registry.example/a:1"), EPHEMERAL), False),
        ((image("@sha256:" + "0" * 64),), False),
        ((image("registry.example/a:1", readOnly=True), EPHEMERAL), True),
    ],
)
def test_copy_is_shallow_when_the_base_image_is_the_same(disks: tuple[dict[str, Any], ...], expected: bool) -> None:
    assert copied_disks.is_shallow(of(*disks)) is expected


def test_too_many_copied_disks_prevent_migration() -> None:
    blank = [{**BLANK, "name": f"blank{number}"} for number in range(copied_disks.MAX_COPIED + 1)]
    assert migratability.not_migratable(of(*blank[1:])) == ""
    assert "9 disks exists only in its pod, and a migration copies at most 8" in migratability.not_migratable(of(*blank))


def test_page_cache_of_a_copied_disk_allows_migration() -> None:
    assert migratability.not_migratable(of({**EPHEMERAL, "driver": {"cache": "writeback"}})) == ""
    assert "'claim'" in migratability.not_migratable(of({**CLAIM, "driver": {"cache": "writeback"}}))
