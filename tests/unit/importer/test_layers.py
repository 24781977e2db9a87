from __future__ import annotations

import pytest

from importer import layers
from importer.failures import ImportFailed
from importer.layers import Layers

Layer = tuple[str, ...]


def shown(*given: Layer) -> list[str]:
    tree, found = Layers(), []
    for layer in given:
        found += [name for name in layer if tree.is_disk(name.strip("@"), is_file=name[-1] not in "/@", is_directory=name.endswith("/"))]
        tree.end_layer()
    return found


@pytest.mark.parametrize(
    ("given", "disks"),
    [
        ([("disk/disk.img",)], ["disk/disk.img"]),
        ([("./disk/", "./disk/a.qcow2")], ["./disk/a.qcow2"]),
        ([("/disk//a.qcow2",)], ["/disk//a.qcow2"]),
        ([("disk/._disk.img", "disk/disk.img")], ["disk/disk.img"]),
        ([("disk/.keep",)], []),
        ([("disk/.keep",), ("disk/disk.img",)], ["disk/disk.img"]),
        ([("disk/.git/disk.img",)], []),
        ([("disk",), ("disk/disk.img",)], []),
        ([("disks/disk.img", "a/disk/disk.img", "disk/../disk/a", "disk/")], []),
        ([("disk/a.img", "disk/b.img")], ["disk/a.img", "disk/b.img"]),
        ([("disk/a.img",), ("disk/b.img",)], ["disk/a.img", "disk/b.img"]),
        ([("disk/a.img",), ("disk/a.img",)], ["disk/a.img"]),
        ([("disk/a.img@",), ("disk/a.img",)], []),
        ([("disk/.wh.a.img",), ("disk/a.img",)], []),
        ([("disk/.wh.a.img", "disk/b.img"), ("disk/a.img",)], ["disk/b.img"]),
        ([("disk/.wh.a.img", "disk/a.img")], ["disk/a.img"]),
        ([("disk/b.img", "disk/.wh..wh..opq"), ("disk/a.img",)], ["disk/b.img"]),
        ([(".wh.disk",), ("disk/a.img",)], []),
        ([(".wh..wh..opq", "disk/b.img"), ("disk/a.img",)], ["disk/b.img"]),
        ([("disk/.wh.sub",), ("disk/sub/a.img", "disk/b.img")], ["disk/b.img"]),
        ([("disk/.wh.a.img",), (), ("disk/a.img",)], []),
        ([("other/.wh.a.img",), ("disk/a.img",)], ["disk/a.img"]),
    ],
    ids=str,
)
def test_the_disk_is_what_the_layers_show_together(given: list[Layer], disks: list[str]) -> None:
    assert shown(*given) == disks


def test_names_are_remembered_up_to_a_bound() -> None:
    with pytest.raises(ImportFailed, match="more than"):
        shown(tuple(f"disk/.wh.{number}" for number in range(layers.MAX_NAMES + 1)))
