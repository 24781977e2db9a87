from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from apiserver.apis.meta import decoding
from apiserver.apis.virt.v1alpha1 import defaults, types, validation
from benchmarks import disks, gauges, network
from benchmarks.gauges import MIB, NotMeasured, Reading


def test_a_reading_is_found_among_other_words() -> None:
    said = "gauge file /dev/vda …\r\ngauge operations=200 bytes=819200 microseconds=2000000\r\n"
    assert gauges.reading(said) == Reading(200, 819200, 2.0)


@pytest.mark.parametrize("said", ["", "gauge: connect: Connection refused", "gauge operations=1 bytes=1 microseconds=0"])
def test_output_without_figures_is_no_reading(said: str) -> None:
    with pytest.raises(NotMeasured, match="gauge said"):
        gauges.reading(said)


def test_throughput_and_rate_are_of_the_seconds_it_took() -> None:
    read = Reading(300, 8 * MIB, 2.0)
    assert (read.mib_per_second, read.per_second) == (4.0, 150.0)


def test_disk_report_compares_guest_and_container() -> None:
    def readings(per_second: int) -> dict[str, list[Reading]]:
        return {name: [Reading(each, each * work.block_bytes, 1.0) for each in (per_second, 1, 9999)] for name, work in disks.WORKS.items()}

    found = disks.report({disks.OUTSIDE: readings(1000), "guest": readings(250)}, "emulation", 5, 512)
    assert (found["acceleration"], found["rounds"], found["file_mib"]) == ("emulation", 3, 512)
    works = found["works"]["sequential read, 1 MiB"]
    assert works == {
        "container": {"mib_per_second": 1000.0, "per_second": 1000.0},
        "guest": {"mib_per_second": 250.0, "per_second": 250.0, "ratio": 0.25},
    }


def test_network_report_compares_with_the_container() -> None:
    def readings(rate: int) -> dict[str, list[Reading]]:
        return {figure: [Reading(rate, rate * 2 * MIB, 1.0)] for figure in network.FIGURES}

    found = network.report({network.CONTAINER: readings(100), "bridge": readings(10)}, "kvm", 5)
    assert found["ways"]["container"]["sent"] == {"median": 200.0}
    assert found["ways"]["bridge"] == {
        "sent": {"median": 20.0, "ratio": 0.1},
        "received": {"median": 20.0, "ratio": 0.1},
        "connections out": {"median": 10.0, "ratio": 0.1},
        "connections in": {"median": 10.0, "ratio": 0.1},
    }
    assert found["units"] == {
        "sent": "MiB per second",
        "received": "MiB per second",
        "connections out": "per second",
        "connections in": "per second",
    }


def test_nothing_has_no_ratio() -> None:
    assert gauges.ratio(1.0, 0.0) is None


def test_missing_address_is_retried_until_the_deadline() -> None:
    answers: Iterator[NotMeasured | int] = iter([NotMeasured("no route"), 7])

    def look() -> int:
        found = next(answers)
        if isinstance(found, NotMeasured):
            raise found
        return found

    assert network.soon(look, 60) == 7
    answers = iter([NotMeasured("no route")])
    with pytest.raises(NotMeasured, match="no route"):
        network.soon(look, -1)


MACHINES = [disks.machine("gauged", io_thread=each, node="node1") for each in disks.GUESTS.values()] + [
    network.machine("gauged", way, "node1") for way in network.WAYS
]


@pytest.mark.parametrize("manifest", MACHINES)
def test_the_machines_are_valid(manifest: dict[str, Any]) -> None:
    vm = copy.deepcopy(manifest)
    vm["metadata"]["namespace"] = "bench"
    assert decoding.read(types.VirtualMachine, vm) == ((), ())
    defaults.default_virtual_machine(vm)
    assert validation.validate_virtual_machine(vm) == []
