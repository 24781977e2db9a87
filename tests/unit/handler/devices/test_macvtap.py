from __future__ import annotations

import os
from pathlib import Path

import pytest

from apiserver.apis.virt.places import network
from handler.devices import macvtap
from handler.devices.macvtap import Macvtaps


def test_each_id_is_a_device_of_its_own(tmp_path: Path) -> None:
    found = Macvtaps(tmp_path)
    assert len(set(found.ids())) == macvtap.NUMBERS
    assert len(set(found.paths(found.ids()))) == macvtap.NUMBERS
    assert found.paths(found.ids()[1:3]) == tuple((str(tmp_path / str(each)), macvtap.path_of(each)) for each in (2, 3))


@pytest.mark.parametrize("unknown", ["macvtap0", "macvtap65", "macvtap", "tun1", "macvtap01", "../1"])
def test_invalid_macvtap_ids_give_no_path(tmp_path: Path, unknown: str) -> None:
    assert Macvtaps(tmp_path).paths([unknown]) == ()


@pytest.fixture
def node(tmp_path: Path) -> Macvtaps:
    """Return the Macvtaps of a node that has 1 and 3; 2 counts as free, because only a temporary link holds it."""
    (tmp_path / "devices").write_text("246 macvtap\n")
    for minor, link in ((1, "tap12345"), (2, "kvhold2"), (3, "mvt0")):
        (tmp_path / f"246:{minor}").symlink_to(f"../../devices/virtual/net/{link}/macvtap/tap{minor}")
    (tmp_path / "10:4").symlink_to("../../devices/virtual/misc/tun")
    return Macvtaps(tmp_path / "nodes", numbers=tmp_path, drivers=tmp_path / "devices")


def test_device_number_of_an_existing_macvtap_is_refused(node: Macvtaps) -> None:
    """The pod would open another guest's macvtap, or another program's."""
    assert node.refusal(["macvtap1", "macvtap2", "macvtap3"]) == "another macvtap of the node already has the number 246:1 and 246:3"
    assert node.refusal(["macvtap2", "macvtap4", "tun1"]) == ""
    assert network.MACVTAP_HOLDER == "kvhold"


def test_lowest_free_device_numbers_are_preferred(node: Macvtaps) -> None:
    available = ["macvtap10", "macvtap3", "macvtap4", "macvtap1", "tun1", "macvtap2"]
    assert node.preferred(available, 2) == ("macvtap2", "macvtap4")
    assert node.preferred(available, 9) == ("macvtap2", "macvtap4", "macvtap10", "macvtap1", "macvtap3")
    assert node.preferred(available, 0) == node.preferred([], 1) == ()


@pytest.mark.parametrize(
    ("listed", "major"),
    [
        ("Character devices:\n 10 misc\n246 macvtap\n\nBlock devices:\n  7 loop\n", 246),
        ("  9 macvtap\n", 9),
        (" 10 misc\n247 macvtap2\n", None),
    ],
)
def test_the_drivers_number_is_the_kernels(tmp_path: Path, listed: str, major: int | None) -> None:
    (tmp_path / "devices").write_text(listed)
    assert macvtap.driver(tmp_path / "devices") == major


def test_files_that_are_no_macvtap_device_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / macvtap.path_of(3)[1:]).write_text("")
    (tmp_path / macvtap.path_of(4)[1:]).symlink_to("/dev/null")
    for directory in (tmp_path, tmp_path / "dev"):  # of the second, without files in its dev
        root = os.open(directory, os.O_PATH)
        try:
            assert macvtap.nodes(root, 246) == macvtap.nodes(root, None) == ()
        finally:
            os.close(root)
