from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launcher.domain.values import InvalidSpecification
from launcher.main.disks import files
from launcher.main.disks.files import DiskUnusable, ImagesMissing


def qcow2(backing: int = 0, features: int = 0, size: int = 0) -> bytes:
    header = bytearray(104)
    header[0:4] = b"QFI\xfb"
    header[4:8] = (3).to_bytes(4, "big")
    header[8:16] = backing.to_bytes(8, "big")
    header[24:32] = size.to_bytes(8, "big")
    header[72:80] = features.to_bytes(8, "big")
    return bytes(header)


@pytest.mark.parametrize(("content", "expected"), [(b"", "raw"), (b"\0" * 512, "raw"), (qcow2(), "qcow2")], ids=["empty", "raw", "qcow2"])
def test_the_format_of_an_image_is_read_from_its_header(tmp_path: Path, content: bytes, expected: str) -> None:
    (tmp_path / "image").write_bytes(content)
    assert files.image_format(tmp_path / "image", "root") == expected


@pytest.mark.parametrize("content", [qcow2(backing=104), qcow2(features=4)], ids=["backing file", "external data file"])
def test_an_image_that_refers_to_other_files_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "image").write_bytes(content)
    with pytest.raises(DiskUnusable, match="refers to other files"):
        files.image_format(tmp_path / "image", "root")


@pytest.fixture
def volumes(tmp_path: Path, pod_directories: Callable[..., None]) -> Path:
    pod_directories(IMAGES=tmp_path / "images", DISKS=tmp_path / "disks", OVERLAYS=tmp_path / "overlays")
    for name in ("images/i/disk", "disks/c", "overlays", "elsewhere"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


IMAGE = {"devices": {"disks": [{"name": "i", "type": "Image", "source": {"path": "disk/disk.img"}}]}}
CLAIM = {"devices": {"disks": [{"name": "c", "type": "PersistentVolumeClaim"}]}}


def test_files_inside_their_volumes_are_found(volumes: Path) -> None:
    (volumes / "images/i/disk/disk.img").write_bytes(qcow2())
    (volumes / "disks/c/disk.img").write_bytes(b"")
    assert files.look(IMAGE)["i"].format == "qcow2"
    assert not files.look(CLAIM)["c"].block


@pytest.mark.parametrize("disk", [{}, {"source": {"ephemeral": True}}, {"readOnly": True}, {"device": "cdrom"}], ids=str)
def test_a_claim_is_raw_whatever_it_begins_with(volumes: Path, disk: dict[str, Any]) -> None:
    (volumes / "disks/c/disk.img").write_bytes(qcow2())
    assert files.look({"devices": {"disks": [{**CLAIM["devices"]["disks"][0], **disk}]}})["c"].format == "raw"


@pytest.mark.parametrize(
    ("specification", "said"),
    [(IMAGE, "disk 'i': file disk/disk.img not found in its image"), (CLAIM, "disk 'c': disk.img: file not found")],
    ids=["image", "claim"],
)
def test_a_missing_file_is_named(volumes: Path, specification: dict[str, object], said: str) -> None:
    with pytest.raises(DiskUnusable, match=f"^{said}"):
        files.look(specification)


@pytest.mark.parametrize(
    ("specification", "link"), [(IMAGE, "images/i/disk/disk.img"), (CLAIM, "disks/c/disk.img")], ids=["image", "claim"]
)
def test_a_link_that_leads_out_of_the_volume_is_refused(volumes: Path, specification: dict[str, object], link: str) -> None:
    (volumes / "elsewhere/secret").write_bytes(b"secret")
    (volumes / link).symlink_to(volumes / "elsewhere/secret")
    with pytest.raises(DiskUnusable, match="not a regular file inside"):
        files.look(specification)


def test_a_directory_in_place_of_an_image_is_refused(volumes: Path) -> None:
    (volumes / "images/i/disk/disk.img").mkdir()
    with pytest.raises(DiskUnusable, match=r"^disk 'i': disk/disk\.img is not a regular file"):
        files.look(IMAGE)


def test_only_a_missing_file_is_reported_as_a_missing_image(volumes: Path) -> None:
    (volumes / "images/i/disk/disk.img").symlink_to("disk.img")
    with pytest.raises(DiskUnusable, match=r"^disk 'i': disk/disk\.img(: Too many levels| is a loop)"):
        files.look(IMAGE)
    (volumes / "images/i/disk/disk.img").unlink()
    (volumes / "images/i/disk").rmdir()
    (volumes / "images/i/disk").write_bytes(b"")
    with pytest.raises(DiskUnusable, match=r"^disk 'i': disk/disk\.img: Not a directory"):
        files.look(IMAGE)


def test_all_claims_without_an_image_are_named(volumes: Path) -> None:
    (volumes / "disks/d").mkdir()
    both = {"devices": {"disks": [{"name": name, "type": "PersistentVolumeClaim"} for name in ("c", "d")]}}

    with pytest.raises(ImagesMissing) as missing:
        files.look(both)
    assert missing.value.disks == ("c", "d")

    (volumes / "disks/c/disk.img").write_bytes(b"")
    with pytest.raises(ImagesMissing) as missing:
        files.look(both)
    assert missing.value.disks == ("d",)


def test_permanent_faults_are_reported_before_missing_images(volumes: Path) -> None:
    with pytest.raises(DiskUnusable) as failed:
        files.look({"devices": {"disks": [*CLAIM["devices"]["disks"], *IMAGE["devices"]["disks"]]}})
    assert not isinstance(failed.value, ImagesMissing)


def test_a_link_that_leads_nowhere_is_no_image_that_will_come(volumes: Path) -> None:
    (volumes / "disks/c/disk.img").symlink_to("nothing")
    with pytest.raises(DiskUnusable) as failed:
        files.look(CLAIM)
    assert not isinstance(failed.value, ImagesMissing)


def an_image(**disk: Any) -> dict[str, Any]:
    return {"devices": {"disks": [{"name": "i", "type": "Image", "source": {"path": "disk/disk.img", "sizeLimit": "1Mi"}, **disk}]}}


@pytest.mark.parametrize("content", [bytes((1 << 20) + 1), qcow2(size=(1 << 20) + 1)], ids=["raw", "qcow2"])
def test_image_larger_than_its_overlay_is_refused(volumes: Path, content: bytes) -> None:
    (volumes / "images/i/disk/disk.img").write_bytes(content)

    with pytest.raises(DiskUnusable, match=r"disk 'i': its image has a virtual size of 1048577 bytes.* Set sizeLimit to 2Mi or more"):
        files.look(an_image())
    assert "i" in files.look(an_image(readOnly=True))


@pytest.mark.parametrize("content", [bytes(1 << 20), qcow2(size=1 << 20)], ids=["raw", "qcow2"])
def test_a_disk_as_large_as_its_limit_is_taken(volumes: Path, content: bytes) -> None:
    (volumes / "images/i/disk/disk.img").write_bytes(content)
    assert "i" in files.look(an_image())


@pytest.mark.parametrize(("content", "fits"), [(bytes(1 << 20), True), (bytes((1 << 20) + 1), False), (qcow2(size=1 << 40), True)])
def test_claim_overlay_has_room_for_all_and_raw_content(volumes: Path, content: bytes, *, fits: bool) -> None:
    (volumes / "disks/c/disk.img").write_bytes(content)
    disk = {"name": "c", "type": "PersistentVolumeClaim", "source": {"ephemeral": True, "sizeLimit": "1Mi"}}
    scratch = {"devices": {"disks": [disk]}}
    if fits:
        assert files.look(scratch)["c"].format == "raw"
    else:
        with pytest.raises(DiskUnusable, match="1048577 bytes"):
            files.look(scratch)
    assert "c" in files.look(CLAIM)


def test_a_limit_that_is_no_quantity_names_its_field() -> None:
    with pytest.raises(InvalidSpecification, match=r"devices\.disks\[0\]\.source\.sizeLimit"):
        files.look(an_image(source={"path": "disk/disk.img", "sizeLimit": "much"}))
