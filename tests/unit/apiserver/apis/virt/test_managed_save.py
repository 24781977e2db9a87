from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from apiserver.apis.meta import errors
from apiserver.apis.meta.names import label_value_errors
from apiserver.apis.meta.validation import Path
from apiserver.apis.virt.lifecycle import managed_save
from apiserver.apis.virt.places import saved_image
from apiserver.apis.virt.places.saved_image import Image
from apiserver.apis.virt.v1alpha1.managed_save import validate
from apiserver.registry.virt import verb_options

ID = "0b7c1a52-0000-4000-8000-000000000001"
IMAGE = Image(ID, 64 * "a", 7)
MOMENT = "2026-11-22T00:00:00Z"


def a_vm(action: str = "Suspend", **operation: Any) -> dict[str, Any]:
    operations = [{"id": ID, "number": 1, "action": action, "attempt": 3, **operation}]
    return {"metadata": {"uid": "u"}, "status": {"attempt": 3, "operations": operations, "nodeName": "node1", "domain": {"type": "kvm"}}}


def test_an_image_is_read_from_the_words_for_it() -> None:
    for image in (IMAGE, replace(IMAGE, machine="pc-q35-10.0")):
        assert saved_image.read(f"saved: the guest's memory was {image}") == image
    for wrong in (
        "",
        "saved",
        str(IMAGE).replace("sha256", "md5"),
        str(IMAGE).replace(ID, "../x"),
        str(IMAGE).replace("7 b", f"{10**20} b"),
    ):
        assert saved_image.read(wrong) is None


def is_accepted(given: str) -> bool:
    try:
        verb_options.require({"metadata": {"name": "testvm"}}, {"id": given}, frozenset({"id"}))
    except errors.Invalid:
        return False
    return True


def test_exactly_the_ids_that_suspend_accepts_are_read() -> None:
    characters = [chr(each) for each in (*range(128), ord("ä"))]
    ids = [
        "backup-1",
        63 * "a",
        64 * "a",
        ID.upper(),
        *characters,
        *(f"a{each}b" for each in characters),
        *(f"a{each}" for each in characters),
    ]
    for given in ids:
        image = replace(IMAGE, id=given)
        assert (saved_image.read(str(image)) == image) is is_accepted(given), given
    assert is_accepted("backup-1")


@pytest.mark.parametrize("machine", ["pc-", "pc.", "-pc", 64 * "p", f"{62 * 'p'}--", "p c", "_"])
def test_the_status_takes_each_machine_type_that_is_read(machine: str) -> None:
    found = saved_image.read(str(replace(IMAGE, machine=machine)))
    assert found is not None
    assert label_value_errors(found.machine) == []
    assert found.machine in ("", "p")


def test_the_status_names_a_requested_image_and_gives_it_back() -> None:
    found = managed_save.saved(a_vm(), "c", f"it was {IMAGE}", MOMENT)
    assert found == {
        "id": ID,
        "claimName": "c",
        "file": f"u/{ID}",
        "digest": f"sha256:{64 * 'a'}",
        "sizeBytes": 7,
        "attempt": 3,
        "type": "kvm",
        "nodeName": "node1",
        "time": MOMENT,
    }
    assert managed_save.image_of({"status": {"managedSave": found}}) == IMAGE
    typed = managed_save.saved(a_vm(), "c", str(replace(IMAGE, machine="pc")), MOMENT)
    assert typed == {**found, "machineType": "pc"}
    assert managed_save.image_of({"status": {}}) is None


@pytest.mark.parametrize(
    ("vm", "claim", "message"),
    [
        (a_vm(), "c", "nothing was saved"),
        (a_vm(), "", str(IMAGE)),
        (a_vm("Reset"), "c", str(IMAGE)),
        (a_vm(attempt=2), "c", str(IMAGE)),
        (a_vm(result="Failed"), "c", str(IMAGE)),
        (a_vm(id="0b7c1a52-0000-4000-8000-000000000002"), "c", str(IMAGE)),
    ],
)
def test_an_image_that_nobody_requested_is_none(vm: dict[str, Any], claim: str, message: str) -> None:
    assert managed_save.saved(vm, claim, message, MOMENT) is None


def test_claims_are_looked_up_in_lower_case() -> None:
    assert managed_save.claim_of({"managedSave": {"claimName": "Memory"}}) == "memory"
    assert managed_save.claim_of({}) == ""


ON_DISK = a_vm(parameters={"nodeDisk": True})


def test_image_on_a_nodes_disk_names_the_node_and_no_claim() -> None:
    found = managed_save.saved(ON_DISK, "", f"it was {IMAGE}", MOMENT)
    assert found is not None
    assert "claimName" not in found
    assert managed_save.node_with({"status": {"managedSave": found}}) == "node1"
    assert managed_save.node_with({"status": {"managedSave": {**found, "claimName": "c"}}}) == managed_save.node_with({}) == ""
    assert managed_save.saved(a_vm(), "", f"it was {IMAGE}", MOMENT) is None


def test_image_is_needed_from_its_save_to_its_use() -> None:
    assert managed_save.needs(ON_DISK, ID)
    assert managed_save.needs({"status": {"managedSave": {"id": ID}}}, ID)
    failed = a_vm(parameters={"nodeDisk": True}, result="Failed")
    for vm in (failed, {}, {"status": {"managedSave": {"id": "another"}}}):
        assert not managed_save.needs(vm, ID)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"nodeDisk": {}}, None),
        ({"claimName": "c"}, None),
        ({"claimName": "c", "nodeDisk": {}}, "spec.managedSave.nodeDisk"),
        ({}, "spec.managedSave.claimName"),
    ],
)
def test_memory_goes_to_one_place(given: dict[str, Any], field: str | None) -> None:
    assert [each.path for each in validate({"managedSave": given}, Path("spec"))] == ([field] if field else [])
