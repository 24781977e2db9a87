from __future__ import annotations

from typing import Any

import pytest

from apiserver.apis.meta import quantity
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import cloud_init
from apiserver.apis.virt.hardware.io_threads import THREAD_BYTES
from controller.reconcilers.launcher_pods import disks, io_threads
from controller.reconcilers.launcher_pods.launcher_pod import requirements
from controller.reconcilers.launcher_pods.requirements import Requirements
from tests.unit.controller.reconcilers.builders import a_vm


def test_sum_of_needs_combines_all_fields() -> None:
    one = Requirements(
        1, 2, 3, 4, {"a": 1, "b": 2}, ({"name": "v"},), ({"name": "m"},), ({"name": "d"},), owns_files=True, cpu_limit_milli=5
    )
    other = Requirements(
        10,
        20,
        30,
        40,
        {"b": 20, "c": 30},
        ({"name": "w"},),
        ({"name": "n"},),
        ({"name": "e"},),
        cpu_limit_milli=50,
        unrequested_bytes=6,
        ports=({"name": "p"},),
    )
    both = one + other
    assert (both.guest_bytes, both.overhead_bytes, both.cpu_request_milli, both.storage_bytes) == (11, 22, 33, 44)
    assert (both.cpu_limit_milli, both.unrequested_bytes) == (55, 6)
    assert both.resources == {"a": 1, "b": 22, "c": 30}
    assert [[each["name"] for each in of] for of in (both.volumes, both.mounts, both.devices)] == [["v", "w"], ["m", "n"], ["d", "e"]]
    assert both.ports == (one + other + one).ports == ({"name": "p"},)
    assert both.owns_files
    assert (other + one).owns_files
    assert not (other + other).owns_files


@pytest.mark.parametrize(
    ("said", "read_only"),
    [({}, False), ({"readOnly": False}, False), ({"readOnly": True}, True), ({"device": "cdrom"}, True)],
)
def test_a_claim_is_mounted_as_the_guest_may_use_it(said: Object, *, read_only: bool) -> None:
    domain: dict[str, Any] = {"devices": {"disks": [{"type": "PersistentVolumeClaim", "source": {"name": "c"}, **said}]}}
    (mount,) = disks.requirements(domain, {"c": {"spec": {"volumeMode": "Filesystem"}}}).mounts
    assert mount.get("readOnly", False) is read_only


def test_each_overlay_has_its_room_on_the_node() -> None:
    image: Object = {"type": "Image", "source": {"reference": "a", "sizeLimit": "1Gi"}}
    one, two = (disks.requirements({"devices": {"disks": [image] * count}}, {}) for count in (1, 2))
    assert two.storage_bytes == 2 * one.storage_bytes
    (overlays,) = (each for each in two.volumes if "emptyDir" in each)
    assert quantity.parse(overlays["emptyDir"]["sizeLimit"]).bytes >= two.storage_bytes


@pytest.mark.parametrize(
    ("devices", "more"),
    [
        ({"graphics": []}, -32),
        ({"graphics": [], "video": {"type": "vga"}}, -16),
        ({"video": {"vram": "32Mi"}}, 32),
        ({"video": {"vram": "256Mi"}}, 256 + 64 - 32),
        ({"video": {"type": "virtio"}}, 264 + 64 - 32),
        ({"sound": {}}, 4),
        ({"inputs": [{"type": "tablet"}, {"type": "mouse"}, {"type": "keyboard"}]}, 2),
        ({"inputs": []}, 0),
        ({"redirectedDevices": {"slots": 3}}, 48),
        ({"interfaces": [{"type": "passt", "ports": []}]}, 32 + 48 + 1),
    ],
    ids=str,
)
def test_a_device_has_its_memory_in_the_pod(devices: Object, more: int) -> None:
    assert requirements(a_vm(domain={"devices": devices}), {}).overhead_bytes == requirements(a_vm(domain={}), {}).overhead_bytes + (
        more << 20
    )


def test_each_io_thread_adds_its_memory() -> None:
    claim: Object = {"type": "PersistentVolumeClaim", "source": {"name": "c"}}
    alone = {**claim, "dedicatedIOThread": True}

    def overhead(count: int, *given: Object) -> int:
        named = [{**each, "name": f"d{position}"} for position, each in enumerate(given)]
        return io_threads.requirements({"ioThreads": {"count": count}, "devices": {"disks": named}}, {}).overhead_bytes

    assert overhead(0, claim) == 0
    assert overhead(3, claim) == 3 * THREAD_BYTES
    assert overhead(0, alone, alone) == 2 * THREAD_BYTES
    assert overhead(3, claim, alone, alone) == 5 * THREAD_BYTES


def test_all_that_a_made_disk_is_made_of_has_its_room() -> None:
    def made(*sources: Object) -> int:
        given = [{"name": f"d{position}", "type": "CloudInitNoCloud", "source": each} for position, each in enumerate(sources)]
        return disks.made_bytes({"devices": {"disks": given}})

    nothing = made({})
    assert nothing > cloud_init.MAX_INLINE
    for way in ("userData", "userDataBase64", "networkData", "networkDataBase64", "metaData", "metaDataBase64"):
        assert made({way: "x" * 40_000}) >= nothing + 2 * 40_000
    for datum in cloud_init.DATA:
        assert made({f"{datum}SecretRef": {"name": "s"}}) >= nothing + 2 * cloud_init.MAX_VALUES
    assert made({"userData": "ü" * 1000}) >= nothing + 2 * 2000
    assert made({"userData": "x" * 40_000}, {}) < 2 * made({"userData": "x" * 40_000})
    assert made() == 0


def test_each_device_of_the_node_is_one_of_its_resource() -> None:
    devices = {
        "gpus": [{"name": "a", "deviceName": "nvidia.com/A10"}],
        "hostDevices": [{"name": "b", "deviceName": "intel.com/qat"}, {"name": "c", "deviceName": "intel.com/qat"}],
    }
    found = requirements(a_vm(domain={"devices": {**devices, "interfaces": []}}), {})
    assert found.resources == {"nvidia.com/A10": 1, "intel.com/qat": 2}
    assert found.overhead_bytes == requirements(a_vm(domain={"devices": {"interfaces": []}}), {}).overhead_bytes + (192 << 20)
