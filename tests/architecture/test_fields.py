"""Files generated from the models are current, and a test covers every field."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any, Final

import pytest

from apiserver.apis.virt.hardware import devices
from apiserver.apis.virt.lifecycle import phases, power
from apiserver.apis.virt.v1alpha1 import types
from apiserver.apis.virt.v1alpha1.defaults import default_virtual_machine
from tests.fields import families, page, schema, shapes, typed
from tests.fields.families import Seen
from tests.fields.schema import Field

MODELS: Final = schema.definitions(types.VirtualMachine)
FIELDS: Final = schema.fields(MODELS)
FILES: Final = families.written()
ENTRIES: Final = families.seen(FILES)
STALE: Final = "is stale: run `make fields`, or `python -m tests.fields`"
COMPUTED: Final = {"spec.domain.devices.disks[].name"}


def test_the_shapes_follow_from_the_models() -> None:
    assert shapes.FILE.read_text(encoding="utf-8") == shapes.text(), f"{shapes.FILE.name} {STALE}"


def test_the_types_follow_from_the_models() -> None:
    assert typed.FILE.read_text(encoding="utf-8") == typed.text(), f"{typed.FILE.name} {STALE}"


def test_page_matches_the_models_and_the_seen_entries() -> None:
    assert page.FILE.read_text(encoding="utf-8") == page.text(FIELDS, ENTRIES), f"{page.FILE.name} {STALE}"


def test_every_field_was_seen_and_every_entry_is_true() -> None:
    assert families.faults(FIELDS, ENTRIES) == []


def test_every_family_has_one_file() -> None:
    assert set(FILES) == {each.family for each in FIELDS}
    assert all(set(content) - {"beside"} == {"example", "seen"} for content in FILES.values())


def test_the_loops_read_the_shapes_without_the_models() -> None:
    program = "import sys, apiserver.apis.virt.structure; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    assert not {"pydantic", "apiserver.apis.virt.v1alpha1.types"} & set(loaded)


@pytest.mark.parametrize(
    ("path", "known"),
    [
        (("VirtualMachineSpec", "runStrategy"), power.RUN_STRATEGIES),
        (("Attempt", "result"), power.RESULTS),
        (("Request", "action"), power.ACTIONS),
        (("VirtualMachineStatus", "phase"), phases.VM_PHASES),
        (("MigrationStatus", "phase"), phases.MIGRATION_PHASES),
    ],
    ids=str,
)
def test_the_models_know_the_words_that_the_loops_write(path: tuple[str, str], known: tuple[str, ...]) -> None:
    models = {**MODELS, **schema.definitions(types.Migration)}
    field, _ = schema.resolved(models[path[0]]["properties"][path[1]], models)
    assert sorted(schema.words_of(field)) == sorted(known)


def defaulted() -> dict[str, Any]:
    vm: dict[str, Any] = {"spec": {"domain": {}}}
    default_virtual_machine(vm)
    found = dict(scalars({key: each for key, each in vm["spec"].items() if key != "domain"}, "spec"))
    found |= scalars({key: each for key, each in vm["spec"]["domain"].items() if key != "devices"}, "spec.domain")
    lists = devices.defaulted({})
    for field in FIELDS:
        parent, _, name = field.path.rpartition(".")
        if parent == "spec.domain.devices" and name in lists:
            kinds = next(each.type.split(" or ") for each in FIELDS if each.path == f"{field.path}[].type")
            for kind in kinds:
                said = {"type": kind, "source": {}} if name == "disks" else {"type": kind}
                (device,) = devices.defaulted({"devices": {name: [said]}})[name]
                found |= {path: each for path, each in scalars(device, f"{field.path}[]") if path != f"{field.path}[].type"}
    return {path: each for path, each in found.items() if path not in COMPUTED}


def scalars(value: Any, path: str) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [pair for key, each in value.items() for pair in scalars(each, f"{path}.{key}")]
    return [(path, value)]


@pytest.mark.parametrize(("path", "value"), defaulted().items(), ids=str)
def test_the_text_of_a_field_says_the_default_that_is_meant(path: str, value: object) -> None:
    (field,) = [each for each in FIELDS if each.path == path]
    assert (str(value).lower() if isinstance(value, bool) else str(value)) in field.default


GOOD = Seen("cpu", "cores", {"guest": "tests/host/launcher/test_devices.py::test_disks_of_every_kind_are_seen_by_the_guest"})
CORES = [each for each in FIELDS if each.path == "spec.domain.cpu.cores"]
BUS = [each for each in FIELDS if each.path == "spec.domain.devices.disks[].target.bus"]
BUSES = {"values": dict.fromkeys(("virtio", "sata", "scsi", "usb"), GOOD.members["guest"])}
AFFINITY = [each for each in FIELDS if each.path.startswith("spec.affinity.")]
COPIED = {"golden": "tests/golden/pods/copied.json", "why": "copied"}


@pytest.mark.parametrize(
    ("fields", "entries", "fault"),
    [
        (CORES, [], "spec.domain.cpu.cores has no entry in tests/fields/cpu.toml"),
        (CORES, [GOOD, replace(GOOD, key="corse")], "tests/fields/cpu.toml: corse is no field that has a value"),
        (CORES, [replace(GOOD, key="*")], "spec.domain.cpu.cores has no entry"),
        (CORES, [replace(GOOD, members={})], "cores names nothing that saw it"),
        (CORES, [replace(GOOD, members={"seen": "x"})], "cores has seen, which means nothing"),
        (CORES, [replace(GOOD, members={"guest": "tests/host/launcher/test_devices.py::test_no_more"})], "test_no_more, which is no test"),
        (CORES, [replace(GOOD, members={"guest": "tests/host/launcher/gone.py::test_x"})], "gone.py::test_x, which is no test"),
        (CORES, [replace(GOOD, members={"guest": "tests/host/launcher/test_devices.py::a_disk_image"})], "a_disk_image, which is no test"),
        (CORES, [replace(GOOD, members={"guest": f"{__name__.replace('.', '/')}.py::test_every_family_has_one_file"})], "has no guest"),
        (CORES, [replace(GOOD, members={"effect": GOOD.members["guest"]})], "cores is part of the domain"),
        (CORES, [replace(GOOD, members={"golden": COPIED["golden"]})], "cores does not say why no guest can see it"),
        (CORES, [replace(GOOD, members={**COPIED, "golden": "tests/golden/pods/gone.json"})], "gone.json, which is no golden file"),
        (CORES, [replace(GOOD, members={**COPIED, "golden": "README.md"})], "README.md, which is no golden file"),
        (BUS, [Seen("disks", "target.bus", GOOD.members)], "target.bus does not say what saw sata"),
        (BUS, [Seen("disks", "target.bus", {"values": {**BUSES["values"], "ide": "x"}})], "says what saw ide, which it cannot be"),
        (BUS, [Seen("disks", "target.bus", {"values": {**BUSES["values"], "usb": "x"}})], "target.bus names x, which is no test"),
        (BUS, [Seen("disks", "target.bus", {"values": {**BUSES["values"], "usb": COPIED["golden"]}})], "does not say why no guest can see"),
        (AFFINITY, [Seen("spec", "affinity", COPIED)], "has no entry in tests/fields/spec.toml"),
        (
            AFFINITY,
            [Seen("spec", "affinity.*", {**COPIED, "golden": "tests/golden/pods/tiny.json"})],
            "tiny.json, which has no spec.affinity.",
        ),
        ([replace(each, is_copied=False) for each in AFFINITY], [Seen("spec", "affinity.*", COPIED)], "is not only copied into the pod"),
    ],
)
def test_missing_or_wrong_entries_are_reported(fields: list[Field], entries: list[Seen], fault: str) -> None:
    assert any(fault in each for each in families.faults(fields, entries))


def test_an_entry_of_its_own_and_one_of_the_whole_are_sound() -> None:
    assert families.faults(CORES, [GOOD]) == []
    assert families.faults(BUS, [Seen("disks", "target.bus", BUSES)]) == []
    assert families.faults(AFFINITY, [Seen("spec", "affinity.*", COPIED)]) == []


def test_a_type_that_has_no_shape_is_not_passed_over() -> None:
    for unknown in ({"type": "number"}, {"type": "integer"}, {"anyOf": [{"type": "string"}, {"type": "integer"}]}, {}):
        with pytest.raises(NotImplementedError):
            shapes.shape(unknown, {})
