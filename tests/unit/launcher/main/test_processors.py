from __future__ import annotations

import os
from pathlib import Path

from launcher.main.programs import processors

DEDICATED = {"cpu": {"dedicatedCpuPlacement": True}}


def test_threads_of_a_core_are_adjacent(tmp_path: Path) -> None:
    for processor, socket, core in ((0, 1, 0), (1, 0, 0), (2, 0, 1), (8, 0, 1), (9, 0, 0), (3, 0, 2)):
        place = tmp_path / f"cpu{processor}/topology"
        place.mkdir(parents=True)
        (place / "physical_package_id").write_text(f"{socket}\n")
        (place / "core_id").write_text(f"{core}\n")
    assert processors.in_order({0, 1, 2, 3, 8, 9}, tmp_path) == (1, 9, 2, 8, 3, 0)


def test_processors_of_a_numa_node_are_adjacent(tmp_path: Path) -> None:
    for processor, node in ((0, "node1"), (1, "node0"), (2, "node1"), (3, "node99999")):
        (tmp_path / f"cpu{processor}" / node).mkdir(parents=True)
    assert processors.in_order({0, 1, 2, 3}, tmp_path) == (1, 3, 0, 2)
    assert processors.nodes((0, 1, 3, 7), tmp_path) == {0: 1, 1: 0, 3: 0, 7: 0}


def test_unknown_topology_keeps_numeric_order(tmp_path: Path) -> None:
    (tmp_path / "cpu7/topology").mkdir(parents=True)
    (tmp_path / "cpu7/topology/core_id").write_text("-\n")
    assert processors.in_order({12, 3, 7}, tmp_path) == (3, 7, 12)


def test_dedicated_processors_are_those_of_the_container() -> None:
    assert sorted(processors.look(DEDICATED)) == sorted(os.sched_getaffinity(0))


def test_shared_processors_are_not_looked_up() -> None:
    assert processors.look({"cpu": {"isolateEmulatorThread": True}}) == processors.look({}) == ()
