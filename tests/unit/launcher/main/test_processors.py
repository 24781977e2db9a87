"""The order of a pod's processors, of which no machine of tests has these."""

from __future__ import annotations

from pathlib import Path

from launcher.main import processors

DEDICATED = {"cpu": {"dedicatedCpuPlacement": True}}


def test_neighbours_of_a_core_stand_beside_each_other(tmp_path: Path) -> None:
    for processor, socket, core in ((0, 1, 0), (1, 0, 0), (2, 0, 1), (8, 0, 1), (9, 0, 0), (3, 0, 2)):
        place = tmp_path / f"cpu{processor}/topology"
        place.mkdir(parents=True)
        (place / "physical_package_id").write_text(f"{socket}\n")
        (place / "core_id").write_text(f"{core}\n")
    assert processors.look(DEDICATED, tmp_path, lambda _pid: {0, 1, 2, 3, 8, 9}) == (1, 9, 2, 8, 3, 0)


def test_processors_of_a_numa_node_stand_beside_each_other(tmp_path: Path) -> None:
    for processor, node in ((0, "node1"), (1, "node0"), (2, "node1"), (3, "node99999")):
        (tmp_path / f"cpu{processor}" / node).mkdir(parents=True)
    assert processors.look(DEDICATED, tmp_path, lambda _pid: {0, 1, 2, 3}) == (1, 3, 0, 2)
    assert processors.nodes((0, 1, 3, 7), tmp_path) == {0: 1, 1: 0, 3: 0, 7: 0}


def test_a_node_that_does_not_tell_how_it_is_made_has_them_in_order(tmp_path: Path) -> None:
    (tmp_path / "cpu7/topology").mkdir(parents=True)
    (tmp_path / "cpu7/topology/core_id").write_text("-\n")
    assert processors.look(DEDICATED, tmp_path, lambda _pid: {12, 3, 7}) == (3, 7, 12)


def test_nobody_looks_for_a_machine_that_shares_them() -> None:
    assert processors.look({"cpu": {"isolateEmulatorThread": True}}) == processors.look({}) == ()
