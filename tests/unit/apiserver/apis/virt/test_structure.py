from __future__ import annotations

import pytest
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from apiserver.apis.meta.structure import integer
from apiserver.apis.virt import structure
from apiserver.apis.virt.v1alpha1 import types
from tests.hostile import (
    CASES,
    MIGRATION_PIECES,
    MISSING,
    NUMBERS,
    PIECES,
    VALUES,
    WORST,
    Case,
    a_full_migration,
    a_full_virtual_machine,
    all_fields,
    places,
)

COPIED = (
    "spec.affinity",
    "spec.tolerations",
    "spec.topologySpreadConstraints",
)
"""Copied into the pod; kube-apiserver validates them."""
AS_THE_SPEC = "status.running"
"""The part of the status with the same checks as the spec."""
LATER_WORDS = (("status", "operations", "action"), ("status", "devices", "kind"))
JUDGED = [case for case in CASES if not case.path.startswith((*COPIED, "metadata"))]


def is_refused_by_the_models(case: Case) -> bool:
    if case.value == "half a surrogate pair":
        return True  # UTF-8 cannot encode it, so it never reaches the models
    kind = types.VirtualMachine if case.kind == "VirtualMachine" else types.Migration
    try:
        kind.model_validate({key: value for key, value in case.object.items() if key != "metadata"})
    except ValidationError as error:
        # A reader accepts unknown members, and words of a later version.
        return any(each["type"] != "extra_forbidden" and not is_a_later_word(each) for each in error.errors())
    return False


def is_a_later_word(error: ErrorDetails) -> bool:
    path = [each for each in error["loc"] if isinstance(each, str)]
    return error["type"] == "literal_error" and isinstance(error["input"], str) and tuple(path) in LATER_WORDS


def faults_of(case: Case) -> tuple[str, ...]:
    return structure.of_virtual_machine(case.object) if case.kind == "VirtualMachine" else structure.of_migration(case.object)


def test_the_full_objects_have_every_field() -> None:
    for kind, full in ((types.VirtualMachine, a_full_virtual_machine()), (types.Migration, a_full_migration())):
        present = {".".join(step for step in path if isinstance(step, str)) for path in places(full)}
        assert {each for each in all_fields(kind) if not each.startswith((*COPIED, AS_THE_SPEC))} <= present


def test_sound_objects_have_no_faults() -> None:
    assert structure.of_virtual_machine(a_full_virtual_machine()) == ()
    assert structure.of_migration(a_full_migration()) == ()
    assert structure.of_virtual_machine({"metadata": {"name": "x"}, "spec": {"domain": {}}}) == ()


@pytest.mark.sample(4, "hostile values, judged twice")  # several values for each place
@pytest.mark.parametrize("piece", range(8))
def test_every_hostile_value_is_judged_as_by_the_models(piece: int) -> None:
    assert [case.name for case in JUDGED[piece::8] if bool(faults_of(case)) != is_refused_by_the_models(case)] == []


def test_running_hardware_is_checked_like_the_spec() -> None:
    vm = a_full_virtual_machine()
    vm["status"]["running"] = {"generation": 1, **{key: vm["spec"][key] for key in ("domain", "accessCredentials")}}
    assert structure.of_virtual_machine(vm) == ()
    assert structure.has_sound_domain(vm)
    vm["status"]["running"] = {**vm["status"]["running"], "domain": {"devices": {"disks": "../../x"}}, "accessCredentials": 7}
    assert structure.of_virtual_machine(vm) == (
        "status.running.domain.devices.disks must be a list, not a string",
        "status.running.accessCredentials must be a list, not an integer",
    )
    assert not structure.has_sound_domain(vm)


@pytest.mark.parametrize(("field", "member"), [("operations", "action"), ("devices", "kind")])
def test_a_word_of_a_later_release_hides_no_machine(field: str, member: str) -> None:
    vm = a_full_virtual_machine()
    vm["status"][field][0][member] = "Later"
    assert structure.of_virtual_machine(vm) == ()


def test_no_hostile_value_is_left_out() -> None:
    assert len(JUDGED) > 1000
    assert {case.value for case in JUDGED} == {*VALUES, *NUMBERS, MISSING}
    of_both = [case.name for found in (*PIECES.values(), *MIGRATION_PIECES.values()) for case in found]
    assert sorted(of_both) == sorted(case.name for case in CASES if case.value in WORST)


def test_a_fault_says_where_it_is() -> None:
    vm = a_full_virtual_machine()
    vm["status"]["attempts"][0]["number"] = "1"
    disks = vm["spec"]["domain"]["devices"]["disks"]
    position = next(position for position, disk in enumerate(disks) if disk["name"] == "three")
    disks[position]["source"]["metaDataSecretRef"]["name"] = None
    assert structure.of_virtual_machine(vm) == (
        f"spec.domain.devices.disks[{position}].source.metaDataSecretRef.name is missing",
        "status.attempts[0].number must be an integer, not a string",
    )


@pytest.mark.parametrize("obj", [None, [], "text", {}, {"metadata": None, "spec": {}}], ids=repr)
def test_non_objects_are_reported(obj: object) -> None:
    assert structure.of_virtual_machine(obj)
    assert structure.of_migration(obj)


def test_few_of_many_faults_are_told() -> None:
    vm = a_full_virtual_machine()
    vm["status"]["attempts"] = [{} for _ in range(10_000)]
    faults = structure.of_virtual_machine(vm)
    assert len(faults) == 9
    assert faults[-1] == "and 9992 more"


def test_members_that_a_newer_release_knows_are_nobodys_business() -> None:
    vm = a_full_virtual_machine()
    vm["status"]["attempts"][0]["novelty"] = {"deep": [1, 2, {}]}
    assert structure.of_virtual_machine(vm) == ()


@pytest.mark.parametrize(("number", "is_sound"), [(1 << 31, False), ((1 << 31) - 1, True), (-(1 << 31), True), (-(1 << 31) - 1, False)])
def test_an_integer_has_so_many_bits_with_its_sign(number: int, *, is_sound: bool) -> None:
    assert (integer(32)(number) == ()) is is_sound
