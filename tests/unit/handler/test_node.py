from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from handler.devices import ownership
from handler.node import Node, device_nodes
from handler.pods.hanging import StorageHangs
from tests.unit.handler.reconcilers.builders import a_vm


@pytest.fixture
def root(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path, os.O_PATH)
    yield descriptor
    os.close(descriptor)


async def test_hanging_pod_storage_stalls_no_other_pod(root: int) -> None:
    answers, asked = threading.Event(), []

    def give(_root: int, node: ownership.Node) -> bool:
        asked.append(threading.current_thread().name)
        return "hung" not in threading.current_thread().name or answers.wait(30)

    node, connection = Node(give=give, patience_seconds=1.0), SimpleNamespace(process=SimpleNamespace(root=root, pidfd=root))
    before = {each.name for each in Path("/proc/self/fd").iterdir()}

    async def start(pod_uid: str) -> None:
        await node.give_devices(a_vm(), pod_uid, connection)  # type: ignore[arg-type]  # of a connection it takes the root alone

    try:
        for _ in range(3):
            with pytest.raises(StorageHangs, match="pod hung"):
                await start("hung")
        assert asked == ["pod hung"]
        async with asyncio.TaskGroup() as tasks:
            for number in range(20):
                tasks.create_task(start(f"sound-{number}"))
    finally:
        answers.set()
    await start("hung")
    await start("hung")
    assert {each.name for each in Path("/proc/self/fd").iterdir()} == before


@pytest.mark.parametrize(("there", "accelerator"), [({ownership.KVM, ownership.TUN}, "kvm"), ({ownership.TUN}, "qemu"), (set(), "qemu")])
async def test_guest_uses_kvm_if_its_pod_has_the_device(root: int, there: set[ownership.Node], accelerator: str) -> None:
    node = Node(give=lambda _root, node: node in there)
    connection = SimpleNamespace(process=SimpleNamespace(root=root, pidfd=root))
    given = await node.give_devices(a_vm(), "pod-1", connection)  # type: ignore[arg-type]  # of a connection it takes the root alone
    assert given == accelerator


def test_vsock_device_is_given_only_on_request() -> None:
    assert ownership.VHOST_VSOCK not in device_nodes(a_vm())
    assert ownership.VHOST_VSOCK in device_nodes({"spec": {"domain": {"devices": {"vsock": {}}}}})


def test_a_claim_that_the_guest_only_reads_is_given_to_be_read() -> None:
    """A compromised QEMU could write to a base image that other VMs share."""
    claim = {"type": "PersistentVolumeClaim", "source": {"name": "image"}}
    given = [
        {**claim, "name": "own"},
        {**claim, "name": "read", "readOnly": True},
        {**claim, "name": "medium", "device": "cdrom"},
        {**claim, "name": "under", "source": {"name": "image", "ephemeral": True}},
        {**claim, "name": "filled", "readOnly": True, "source": {"name": "image", "import": {"http": {"url": "http://h/"}}}},
        {"type": "EmptyDisk", "name": "blank", "source": {"size": "1Gi"}},
        {"device": "cdrom", "name": "empty"},
    ]
    found = [each for each in device_nodes({"spec": {"domain": {"devices": {"disks": given}}}}) if each.kind == "block"]
    only_read = [ownership.disk(each, read_only=True) for each in ("read", "medium", "under")]
    assert found == [ownership.disk("own"), *only_read, ownership.disk("filled")]


async def test_device_errors_are_raised(root: int) -> None:
    def give(*_arguments: Any) -> bool:
        raise ownership.NotTheDevice("/dev/kvm in the pod contains a symbolic link")

    link: Any = SimpleNamespace(process=SimpleNamespace(root=root, pidfd=root))
    for _ in range(2):
        with pytest.raises(ownership.NotTheDevice):
            await Node(give=give).give_devices(a_vm(), "pod-1", link)
