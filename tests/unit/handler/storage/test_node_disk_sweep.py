from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.meta import errors
from apiserver.client.rest import TransportError
from handler.pods.hanging import StorageHangs
from handler.storage.node_disk import Image, NodeDisk, Refused
from handler.storage.node_disk_sweep import Sweep

IMAGE = Image("ns", "a.b", "u", "op")
GONE = errors.Details(name="a.b", group="kubevirt.io", kind="virtualmachines")


class Disk:
    def __init__(self) -> None:
        self.kept = [IMAGE]

    def clear(self) -> None:
        pass

    def images(self) -> list[Image]:
        return list(self.kept)

    def delete(self, image: Image) -> None:
        self.kept.remove(image)


def a_vm(uid: str = "u", **status: Any) -> dict[str, Any]:
    return {"metadata": {"uid": uid}, "status": {"attempt": 1, **status}}


async def is_kept(answer: dict[str, Any] | Exception, unmounting: Exception | None = None) -> bool:
    disk = Disk()
    unmounted: list[str] = []

    async def get(_image: Image) -> dict[str, Any]:
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def unmount(_image: Image, pod_uid: str) -> None:
        unmounted.append(pod_uid)
        if unmounting is not None:
            raise unmounting

    await Sweep(disk, get, unmount).look()
    assert unmounted == ([answer["status"]["podUID"]] if isinstance(answer, dict) and answer["status"].get("podUID") else [])
    return bool(disk.kept)


@pytest.mark.parametrize(
    "answer",
    [
        a_vm(managedSave={"id": "op"}),
        a_vm(operations=[{"id": "op", "action": "Suspend", "attempt": 1}]),
        errors.NotFound("404 page not found"),
        errors.ServiceUnavailable("starting"),
        errors.Forbidden("no"),
        TransportError("no answer"),
    ],
)
async def test_needed_image_stays_also_without_an_answer(answer: dict[str, Any] | Exception) -> None:
    assert await is_kept(answer)


@pytest.mark.parametrize(
    "answer",
    [
        errors.NotFound("no", GONE),
        a_vm("another", managedSave={"id": "op"}),
        a_vm(managedSave={"id": "later"}),
        a_vm(podUID="pod", operations=[{"id": "op", "action": "Suspend", "attempt": 1, "result": "Failed"}]),
    ],
)
async def test_an_image_that_no_machine_needs_is_unmounted_and_deleted(answer: dict[str, Any] | Exception) -> None:
    assert not await is_kept(answer)


@pytest.mark.parametrize("error", [StorageHangs("hangs"), OSError(16, "busy")])
async def test_an_image_in_use_stays(error: Exception) -> None:
    assert await is_kept(a_vm(podUID="pod"), error)


def test_files_name_their_image() -> None:
    assert IMAGE.file == "ns.a.b.u.op"
    assert Image.of(IMAGE.file) == IMAGE
    assert [Image.of(each) for each in (".new", "lost+found", "a.b.c", "a..b.c.", "")] == [None] * 5


async def test_rest_of_an_interrupted_save_is_deleted(tmp_path: Path) -> None:
    disk = NodeDisk("node1", tmp_path)
    rest, kept = tmp_path / ".new", tmp_path / IMAGE.file
    rest.touch()
    kept.touch()

    async def get(_image: Image) -> dict[str, Any]:
        return a_vm(managedSave={"id": "op"})

    async def unmount(_image: Image, _pod_uid: str) -> None:
        raise AssertionError

    await Sweep(disk, get, unmount).look()
    assert (rest.exists(), kept.exists()) == (False, True)


def test_node_without_the_option_refuses_images(tmp_path: Path) -> None:
    disk = NodeDisk("node1", None)
    with pytest.raises(Refused, match=r"node node1 keeps no guests' memory.*managedSave.nodeDisk.enabled is false"):
        disk.make(IMAGE, 1)
    disk.delete(IMAGE)
    disk.clear()
    assert disk.images() == NodeDisk("node1", tmp_path / "none").images() == []
