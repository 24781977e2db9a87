from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.apis.meta.validation import Path as Place
from apiserver.apis.virt.hardware import clock, cpu, cpu_numa, devices, disks, interfaces, io_threads, memory, resources

IMAGE: dict[str, Any] = {"type": "Image", "source": {"reference": "a"}}
CLAIM: dict[str, Any] = {"type": "PersistentVolumeClaim", "source": {"name": "b"}}


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return not devices.differing(one, other, Place())


def test_disk_defaults_depend_on_type_and_position() -> None:
    domain = {"devices": {"disks": [CLAIM, {**IMAGE, "device": "cdrom"}, {**IMAGE, "name": "x", "target": {}}]}}
    before = copy.deepcopy(domain)
    assert disks.defaulted(domain) == [
        {**CLAIM, "name": "disk0", "device": "disk", "readOnly": False, "target": {"bus": "virtio"}},
        {
            "name": "disk1",
            "type": "Image",
            "source": {"reference": "a", "path": "disk/disk.img"},
            "device": "cdrom",
            "readOnly": True,
            "target": {"bus": "sata"},
        },
        {
            "name": "x",
            "type": "Image",
            "source": {"reference": "a", "path": "disk/disk.img", "sizeLimit": "4Gi"},
            "device": "disk",
            "readOnly": False,
            "target": {"bus": "virtio"},
        },
    ]
    assert domain == before


def test_explicit_disk_and_interface_fields_are_kept() -> None:
    said = {**IMAGE, "name": "n", "device": "cdrom", "readOnly": True, "target": {"bus": "scsi"}}
    said["source"] = {"reference": "a", "path": "p"}
    assert disks.defaulted({"devices": {"disks": [said]}}) == [said]
    assert interfaces.defaulted({"devices": {"interfaces": [{"name": "n", "model": "e1000"}]}}) == [
        {"name": "n", "type": "masquerade", "model": "e1000"}
    ]


@pytest.mark.parametrize("domain", [{}, {"devices": None}, {"devices": {}}, {"devices": {"disks": None, "interfaces": None}}])
def test_a_list_that_is_not_there_has_what_every_machine_needs(domain: dict[str, Any]) -> None:
    assert devices.defaulted(domain) == {
        "disks": [],
        "interfaces": [{"name": "default", "type": "masquerade", "model": "virtio"}],
        "graphics": [{"type": "vnc"}],
        "consoles": [{"type": "pty"}],
    }


def test_an_empty_list_has_nothing() -> None:
    empty: dict[str, Any] = {each: [] for each in devices.defaulted({})}
    assert devices.defaulted({"devices": empty}) == empty


def test_processors_and_memory_are_counted() -> None:
    assert (cpu.vcpus({}), cpu.vcpus({"cpu": {"sockets": 2, "cores": 3, "threads": 2}})) == (1, 12)
    assert memory.guest_bytes({}) == 512 << 20
    assert memory.guest_bytes({"memory": {"guest": 2**30}}) == 2**30
    with pytest.raises(ValueError, match="quantities must match"):
        memory.guest_bytes({"memory": {"guest": "much"}})


def test_the_same_hardware_may_be_said_in_different_words() -> None:
    assert same({"memory": {"guest": "1Gi"}}, {"memory": {"guest": "1024Mi"}, "devices": {"graphics": [{"type": "vnc"}]}})
    assert not same({}, {"devices": {"graphics": []}})
    assert not same({"cpu": {"cores": 1}}, {"cpu": {"cores": 2}})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {"video": {"type": "vga", "vram": "16384Ki"}, "inputs": [{"type": "tablet"}], "rng": {}, "panic": {"model": "isa"}}),
        ({"watchdog": {}}, {"watchdog": {"model": "i6300esb", "action": "reset"}}),
        ({"vsock": {}}, {"vsock": {"model": "virtio"}}),
        ({"sound": {"model": None}}, {"sound": {"model": "ich9"}}),
        ({"rng": {"rate": {"bytes": 1}}}, {"rng": {"rate": {"bytes": 1, "period": 1000}}}),
        ({"graphics": []}, {"graphics": [], "video": {"type": "none"}, "inputs": [], "watchdog": None}),
        ({"video": {"type": "virtio"}}, {"video": {"type": "virtio", "heads": 1}}),
        ({"blockMultiQueue": None}, {"networkInterfaceMultiqueue": False, "autoattachMemBalloon": True}),
    ],
    ids=str,
)
def test_explicit_defaults_equal_omitted_devices(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert same({"devices": one}, {"devices": other})


@pytest.mark.parametrize(
    "said",
    [
        {"watchdog": {}},
        {"vsock": {}},
        {"sound": {}},
        {"rng": {"model": "none"}},
        {"panic": {"model": "none"}},
        {"inputs": []},
        {"video": {"vram": "32Mi"}},
        {"video": {"type": "bochs"}},
        {"blockMultiQueue": True},
        {"blockMultiQueue": False},
        {"networkInterfaceMultiqueue": True},
        {"autoattachMemBalloon": False},
        {"aFieldToCome": {}},
    ],
    ids=str,
)
def test_other_devices_make_different_hardware(said: dict[str, Any]) -> None:
    assert not same({}, {"devices": said})


@pytest.mark.parametrize(
    ("disk", "expected"),
    [
        (IMAGE, 4 << 30),
        ({**IMAGE, "source": {"reference": "a", "sizeLimit": "1.5Gi"}}, 3 << 29),
        ({**IMAGE, "readOnly": True}, 0),
        ({**IMAGE, "device": "cdrom"}, 0),
        (CLAIM, 0),
    ],
)
def test_an_overlay_is_as_large_as_is_said_where_there_is_one(disk: dict[str, Any], expected: int) -> None:
    (defaulted,) = disks.defaulted({"devices": {"disks": [disk]}})
    assert disks.overlay_bytes(defaulted) == expected
    assert disks.is_overlaid(defaulted) is bool(expected)


@pytest.mark.parametrize(
    ("size", "expected"), [("1Mi", 1 << 20), ("1048577", 2 << 20), ("1G", 954 << 20), ("64Ti", 64 << 40), ("0.5Gi", 512 << 20)]
)
def test_created_sizes_round_up_to_mebibytes(size: str, expected: int) -> None:
    (defaulted,) = disks.defaulted({"devices": {"disks": [{**CLAIM, "source": {"name": "a", "create": {"size": size}}}]}})
    assert disks.created_bytes(defaulted) == expected
    assert disks.created_bytes({**defaulted, "type": "Image"}) == 0


def test_a_size_that_is_written_otherwise_is_the_same_hardware() -> None:
    one, other, more = (
        {"devices": {"disks": [{**CLAIM, "source": {"name": "a", "create": {"size": size}}}]}} for size in ("1Gi", "1024Mi", "1025Mi")
    )
    assert same(one, other)
    assert not same(one, more)


def test_a_limit_that_is_written_otherwise_is_the_same_hardware() -> None:
    one, other, more = (
        {"devices": {"disks": [{**IMAGE, "source": {"reference": "a", **limit}}]}}
        for limit in ({}, {"sizeLimit": "4096Mi"}, {"sizeLimit": "5Gi"})
    )
    assert same(one, other)
    assert not same(one, more)


@pytest.mark.parametrize(
    ("processors", "most", "highest"),
    [
        ({}, 1, 0),
        ({"sockets": 2, "maxSockets": 4}, 4, 3),
        ({"sockets": 4, "maxSockets": 2}, 4, 3),
        ({"sockets": 2, "cores": 2, "threads": 2}, 8, 7),
        ({"sockets": 2, "cores": 3, "threads": 1}, 6, 6),
        ({"sockets": 1, "cores": 3, "threads": 3}, 9, 10),
    ],
)
def test_apic_ids_encode_socket_core_and_thread(processors: dict[str, int], most: int, highest: int) -> None:
    """Numbers from QEMU (``query-hotpluggable-cpus`` with ``x86 apic-id``)."""
    domain = {"cpu": processors}
    assert (cpu.max_vcpus(domain), cpu.highest_apic_id(domain)) == (most, highest)


@pytest.mark.parametrize(
    ("domain", "request_", "limit"),
    [
        ({}, 100, 0),
        ({"cpu": {"cores": 3}}, 300, 0),
        ({"resources": {"requests": {"cpu": "1.5"}}}, 1500, 0),
        ({"resources": {"limits": {"cpu": "2"}}}, 100, 2000),
        ({"cpu": {"cores": 3}, "resources": {"limits": {"cpu": "50m"}}}, 50, 50),
        ({"cpu": {"cores": 3, "dedicatedCpuPlacement": True}}, 3000, 3000),
        ({"cpu": {"cores": 3, "dedicatedCpuPlacement": True, "isolateEmulatorThread": True}}, 4000, 4000),
        ({"cpu": {"cores": 3, "isolateEmulatorThread": True}}, 300, 0),
    ],
)
def test_cpu_limit_is_set_only_on_request(domain: dict[str, Any], request_: int, limit: int) -> None:
    assert (resources.cpu_request(domain), resources.cpu_limit(domain)) == (request_, limit)


@pytest.mark.parametrize(
    ("given", "request_", "limit"),
    [
        ({}, 512, 512),
        ({"requests": {"memory": "128Mi"}}, 128, 512),
        ({"requests": {"memory": "1Gi"}}, 1024, 1024),
        ({"limits": {"memory": "1Gi"}}, 512, 1024),
        ({"requests": {"memory": "128Mi"}, "limits": {"memory": "1Gi"}}, 128, 1024),
    ],
)
def test_memory_limit_covers_guest_memory_despite_requests(given: dict[str, Any], request_: int, limit: int) -> None:
    domain = {"resources": given}
    assert (resources.memory_request(domain) >> 20, resources.memory_limit(domain) >> 20) == (request_, limit)


def test_a_share_that_is_written_otherwise_is_the_same_hardware() -> None:
    one, other, more = ({"resources": {"limits": {"cpu": each}}} for each in ("1", "1000m", "2"))
    assert same(one, other)
    assert not same(one, more)


def virtio(**fields: Any) -> dict[str, Any]:
    return {**CLAIM, **fields}


def test_disks_rotate_over_shared_threads_or_get_dedicated_ones() -> None:
    several = [virtio(), virtio(dedicatedIOThread=True), virtio(target={"bus": "sata"}), virtio(), virtio(dedicatedIOThread=True), virtio()]
    domain = {"ioThreads": {"count": 2}, "devices": {"disks": several}}
    assert io_threads.assigned(domain) == {"disk0": 1, "disk1": 3, "disk3": 2, "disk4": 4, "disk5": 1}
    assert io_threads.total(domain) == 4
    assert io_threads.assigned({"devices": {"disks": several}}) == {"disk1": 1, "disk4": 2}
    assert io_threads.total({"devices": {"disks": several}}) == 2
    assert io_threads.assigned({"devices": {"disks": [virtio()]}}) == {}


@pytest.mark.parametrize(
    ("domain", "of_disks", "of_virtio", "of_others"),
    [
        ({"cpu": {"cores": 4}}, 0, 1, 1),
        ({"cpu": {"cores": 4}, "devices": {"blockMultiQueue": True, "networkInterfaceMultiqueue": True}}, 4, 4, 1),
        ({"cpu": {"cores": 4}, "devices": {"blockMultiQueue": False, "networkInterfaceMultiqueue": False}}, 1, 1, 1),
        ({"cpu": {"cores": 9}, "devices": {"blockMultiQueue": True, "networkInterfaceMultiqueue": True}}, 8, 8, 1),
    ],
)
def test_a_device_has_no_more_queues_than_processors_and_eight(
    domain: dict[str, Any], of_disks: int, of_virtio: int, of_others: int
) -> None:
    assert disks.queues(domain) == of_disks
    assert (interfaces.queues(domain, "virtio"), interfaces.queues(domain, "e1000e")) == (of_virtio, of_others)


def test_memory_that_is_written_otherwise_is_the_same_hardware() -> None:
    one, other, more = ({"memory": {"guest": "1Gi", "maxGuest": each}} for each in ("2Gi", "2048Mi", "3Gi"))
    assert same(one, other)
    assert not same(one, more)
    assert not same(one, {"memory": {"guest": "1Gi"}})
    assert same({"memory": {"guest": "1Gi", "maxGuest": "1Gi"}}, {"memory": {"guest": "1Gi"}})
    assert not same({}, {"memory": {"hugepages": {"pageSize": "2Mi"}}})


@pytest.mark.parametrize(
    ("text", "expected"), [("0", (0,)), ("3,0-1", (0, 1, 3)), ("2-2", (2,)), ("1,1-2", (1, 2)), ("254-256", (254, 255, 256))]
)
def test_numbers_are_written_as_ranges(text: str, expected: tuple[int, ...]) -> None:
    assert cpu_numa.numbers(text) == expected
    assert cpu_numa.numbers(cpu_numa.ranges(expected)) == expected


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "2-1", "1,", "^1", "0x1", "1 ", "1000", "\u0661", "0\n", ",".join(["1"] * 257)])
def test_malformed_cpu_lists_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a list of numbers|is not an ascending range"):
        cpu_numa.numbers(text)


@pytest.mark.parametrize(
    ("nodes", "mebibytes", "expected"),
    [
        ([0, 0], 512, [((0, 1), 512)]),
        ([5, 5, 5, 2], 512, [((0, 1, 2), 384), ((3,), 128)]),
        ([0, 1, 2], 100, [((0,), 33), ((1,), 33), ((2,), 34)]),
        ([1, 0, 1], 96, [((0, 2), 64), ((1,), 32)]),
        ([0], 1, [((0,), 1)]),
    ],
)
def test_each_processor_has_its_share_of_memory_near_to_it(
    nodes: list[int], mebibytes: int, expected: list[tuple[tuple[int, ...], int]]
) -> None:
    assert [(each.cpus, each.bytes >> 20) for each in cpu_numa.following(nodes, mebibytes << 20)] == expected


@given(st.lists(st.integers(0, 7), min_size=1, max_size=255), st.integers(8 * 255 << 24, 1 << 44))
def test_numa_cells_cover_all_memory_and_processors(nodes: list[int], amount: int) -> None:
    cells = cpu_numa.following(nodes, amount)
    assert sum(each.bytes for each in cells) == amount
    assert sorted(cpu for each in cells for cpu in each.cpus) == list(range(len(nodes)))
    assert all(each.bytes % cpu_numa.MIB == 0 for each in cells[:-1])
    assert all({nodes[cpu] for cpu in each.cpus} == {nodes[each.cpus[0]]} for each in cells)


def test_ranges_are_as_short_as_can_be() -> None:
    assert cpu_numa.ranges([]) == ""
    assert cpu_numa.ranges([5, 1, 0, 2]) == "0-2,5"


def test_a_time_zone_is_a_file_of_its_name(tmp_path: Path) -> None:
    zones = tmp_path / "zoneinfo"
    longest = "A" * 64
    assert clock.is_zone(longest, zones)
    assert not clock.is_zone("A" * 65, zones)
    (zones / "Europe").mkdir(parents=True)
    (zones / "Europe/Berlin").touch()
    (tmp_path / "secret").touch()
    assert clock.is_zone("Europe/Berlin", zones)
    for other in ("Europe", "Europe/Berln", "../secret", "Europe/", "/Europe/Berlin", "Europe//Berlin"):
        assert not clock.is_zone(other, zones), other


@pytest.mark.parametrize(
    ("one", "other", "differing"),
    [
        ({"cpu": {"cores": 1}}, {"cpu": {"cores": 2}}, ["d.cpu.cores"]),
        ({"cpu": {"cores": 1}}, {"cpu": {"cores": 1, "model": "Nehalem"}}, ["d.cpu.model"]),
        ({"memory": {"guest": "1Gi"}}, {"memory": {"guest": "1024Mi"}}, []),
        ({"memory": {"guest": "1Gi"}}, {"memory": {"guest": "2Gi"}, "rtc": 1}, ["d.memory.guest", "d.rtc"]),
        (
            {"devices": {"disks": [CLAIM, IMAGE]}},
            {"devices": {"disks": [CLAIM, CLAIM]}},
            [f"d.devices.disks[1].{each}" for each in ("source.name", "source.reference", "type")],
        ),
        (
            {"devices": {"disks": [CLAIM]}},
            {"devices": {"disks": [{**CLAIM, "target": {"bus": "scsi"}}]}},
            ["d.devices.disks[0].target.bus"],
        ),
        ({"devices": {"disks": [CLAIM]}}, {"devices": {"disks": [CLAIM, CLAIM]}}, ["d.devices.disks"]),
        ({"resources": {"limits": {"cpu": "1"}}}, {"resources": {"limits": {"cpu": "2"}}}, ["d.resources.limits.cpu"]),
    ],
)
def test_the_innermost_fields_that_differ_are_named(one: dict[str, Any], other: dict[str, Any], differing: list[str]) -> None:
    assert [str(each) for each in devices.differing(one, other, Place("d"))] == differing
