"""The claims of a machine's disks."""

from __future__ import annotations

import pytest

from controller.reconcilers import disk_claims
from tests.unit.controller.reconcilers.builders import a_vm


def with_disks(**read_only: bool) -> dict[str, object]:
    disks = [
        {"name": claim, "type": "PersistentVolumeClaim", "source": {"name": claim.upper()}, "readOnly": value}
        for claim, value in read_only.items()
    ]
    return a_vm(domain={"devices": {"disks": disks}})


@pytest.mark.parametrize(
    ("mine", "theirs", "contested"),
    [
        (with_disks(root=False), with_disks(root=False), ("root",)),
        (with_disks(root=True), with_disks(root=False), ("root",)),
        (with_disks(root=False), with_disks(root=True), ("root",)),
        (with_disks(root=True), with_disks(root=True), ()),
        (with_disks(root=False, data=False), with_disks(other=False, data=True), ("data",)),
        (with_disks(root=False), with_disks(data=False), ()),
    ],
)
def test_a_claim_is_contested_when_one_of_two_machines_writes_to_it(
    mine: dict[str, object], theirs: dict[str, object], contested: tuple[str, ...]
) -> None:
    assert disk_claims.contested(mine, theirs) == contested
