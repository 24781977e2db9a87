from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.virt.places import saved_image
from launcher.hypervisor.port import HypervisorError
from launcher.main.decisions.refusal import RequestRefused
from launcher.main.disks import saved_disks, saved_images
from launcher.protocol import made_disks, messages
from tests import system_calls
from tests.fakes.hypervisor import saved_file
from tests.mounted import mount
from tests.unit.launcher.main.world import MACHINE, Call, World

ID = "backup-1"
FILES: dict[str, Any] = {"name": "files", "type": "ConfigMap", "source": {"name": "config"}}
SEED: dict[str, Any] = {"name": "seed", "type": "CloudInitNoCloud", "source": {"userData": "#cloud-config"}}
WITH_DISKS = dataclasses.replace(MACHINE, domain={**MACHINE.domain, "devices": {"disks": [FILES, SEED]}})
SUSPEND = messages.Operate(ID, 1, "Suspend")
BYTES = {"files": b"files of before", "seed": b"seed of before"}
COPIES = made_disks.encode(made_disks.offer_of(tuple(BYTES), tuple(BYTES.values()))) + b"".join(BYTES.values())


@pytest.fixture
def made(tmp_path: Path, pod_directories: Callable[..., None]) -> Path:
    mount(tmp_path / "sources" / "files", {"key": b"of today"})
    pod_directories(MADE=tmp_path / "made", SOURCES=tmp_path / "sources")
    (tmp_path / "made").mkdir()
    return tmp_path / "made"


@pytest.fixture
def claim(world: World) -> Path:
    world.images.mkdir()
    return world.images / MACHINE.uid


async def started(world: World, made: Path) -> None:
    await world.domain.handle(messages.Sync(WITH_DISKS))
    write(made)


def write(made: Path) -> None:
    for name, content in BYTES.items():
        (made / f"{name}.iso").write_bytes(content)


def saved(claim: Path, made: Path) -> messages.Sync:
    claim.mkdir(mode=0o700)
    partial = claim / f"{ID}{saved_images.PARTIAL}"
    partial.write_bytes(saved_file("<domain/>"))
    write(made)
    saved_disks.save(partial, tuple(BYTES))
    digest = saved_images.seal(partial, claim / ID).digest
    for each in made.iterdir():
        each.unlink()
    return messages.Sync(WITH_DISKS, image=messages.Image(ID, digest))


def files(directory: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in directory.iterdir()}


async def test_made_disks_are_copied_next_to_the_image(world: World, claim: Path, made: Path) -> None:
    await started(world, made)
    await world.domain.handle(SUSPEND)
    await world.ends("saved")
    assert set(files(claim)) == {ID, f"{ID}.disks"}
    assert files(claim)[f"{ID}.disks"] == COPIES
    assert {each.stat().st_mode & 0o777 for each in claim.iterdir()} == {0o600}
    image = saved_image.read(world.status.ending.message if world.status.ending is not None else "")
    assert image is not None
    assert saved_images.checked(MACHINE.uid, ID, image.digest, world.images)[0] == claim / ID


def test_copies_are_durable(tmp_path: Path, made: Path) -> None:
    write(made)
    image, seen = tmp_path / ID, list[bytes]()
    copies = image.with_suffix(saved_images.DISKS)
    with system_calls.at(os.fsync, lambda: seen.append(copies.read_bytes())):
        saved_disks.save(image, tuple(BYTES))
    assert seen == [COPIES]


async def test_failed_save_leaves_no_copies(world: World, claim: Path, made: Path) -> None:
    await started(world, made)
    world.hypervisor.fail_next = HypervisorError("no")
    await world.domain.handle(SUSPEND)
    await world.until(lambda: world.status.operations[0].state == "failed")
    assert files(claim) == {}


async def test_resumed_guest_has_the_disks_it_was_saved_with(world: World, claim: Path, made: Path) -> None:
    request, seen = saved(claim, made), {}
    mount(made.parent / "sources" / "files", {"k" * 200: b""})

    async def restore(call: Call) -> Any:
        seen.update(files(made))
        return await call()

    world.hypervisor.intercept("restore", restore)
    await world.domain.handle(request)
    assert seen == {f"{name}.iso": each for name, each in BYTES.items()}
    assert files(claim) == {f"{ID}.used": b""}


CHANGES = {
    "list": COPIES.replace(b"seed", b"soda", 1),
    "end of the list": COPIES.replace(b"\n", b" \n", 1),
    "bytes": COPIES.replace(b"of before", b"of others"),
    "length": COPIES[:-1],
    "all": b"",
}


@pytest.mark.parametrize("change", CHANGES)
async def test_changed_copies_are_refused_and_stay(world: World, claim: Path, made: Path, change: str) -> None:
    request = saved(claim, made)
    (claim / f"{ID}.disks").write_bytes(CHANGES[change])
    with pytest.raises(RequestRefused, match="was changed"):
        await world.domain.handle(request)
    await world.ends("start-failed")
    assert "restore" not in world.hypervisor.calls
    assert set(files(claim)) == {ID, f"{ID}.disks"}


async def test_image_without_copies_is_refused(world: World, claim: Path, made: Path) -> None:
    request = saved(claim, made)
    (claim / f"{ID}.disks").unlink()
    with pytest.raises(RequestRefused, match="was changed"):
        await world.domain.handle(request)
    assert "restore" not in world.hypervisor.calls
