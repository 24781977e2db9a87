from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.virt.hardware import disks
from apiserver.apis.virt.places import layout
from apiserver.apis.virt.spec import hot_plug, live_changes, running

POD_UID = "1b0a1c1e-0000-4000-8000-000000000001"


def a_disk(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": "PersistentVolumeClaim", "source": {"name": name}, **more}


def a_vm(desired: list[dict[str, Any]], runs: list[dict[str, Any]] | None = None, *entries: dict[str, Any]) -> dict[str, Any]:
    status: dict[str, Any] = {"phase": "Running", "podUID": POD_UID, "domain": {"liveChanges": ["disk"]}, "volumeStatus": list(entries)}
    if runs is not None:
        status["running"] = {"generation": 1, "domain": {"memory": {"guest": "1Gi"}, "devices": {"disks": runs}}}
    spec = {"domain": {"memory": {"guest": "1Gi"}, "devices": {"disks": desired}}}
    return {"metadata": {"name": "testvm", "namespace": "default", "uid": "u"}, "spec": spec, "status": status}


def an_entry(vm: dict[str, Any], disk: dict[str, Any]) -> dict[str, Any]:
    (full,) = (each for each in hot_plug.added(vm) if each["name"] == disk["name"])
    volume = {"attachPodName": hot_plug.pod_name(vm, full), "attachPodUID": "2b0a1c1e-0000-4000-8000-000000000001"}
    return {"name": disk["name"], "claimName": disk["source"]["name"], "phase": "AttachedToNode", "hotplugVolume": volume}


def names(*found: tuple[dict[str, Any], ...]) -> list[list[str]]:
    return [[each["name"] for each in disks] for disks in found]


ROOT, DATA, LOGS = a_disk("root"), a_disk("data"), a_disk("logs", target={"bus": "scsi"})


def test_added_removed_and_kept_disks_are_found_by_name() -> None:
    vm = a_vm([ROOT, DATA], [ROOT, LOGS])
    assert names(hot_plug.added(vm), hot_plug.removed(vm), hot_plug.kept(vm)) == [["data"], ["logs"], ["root"]]
    assert hot_plug.live(vm) == ("data", "logs")
    vm["status"]["domain"] = {}
    assert hot_plug.live(vm) == ()


@pytest.mark.parametrize(
    "disk",
    [
        a_disk("x", target={"bus": "sata"}),
        a_disk("x", device="cdrom"),
        a_disk("x", device="lun"),
        a_disk("x", bootOrder=1),
        a_disk("x", dedicatedIOThread=True),
        {"name": "x", "type": "EmptyDisk", "source": {"size": "1Gi"}, "bootOrder": 1},
        {"name": "x", "type": "NBD", "source": {"host": "nbd.example"}},
    ],
)
def test_other_disks_need_a_restart(disk: dict[str, Any]) -> None:
    for vm in (a_vm([ROOT, disk], [ROOT]), a_vm([ROOT], [ROOT, disk])):
        vm["status"]["domain"]["liveChanges"] = [hot_plug.DISK, hot_plug.OVERLAY, hot_plug.MEDIUM]
        assert hot_plug.live(vm) == ()


BLANK: dict[str, Any] = {"name": "x", "type": "EmptyDisk", "source": {"size": "1Mi"}}
OVERLAID: dict[str, Any] = {"name": "x", "type": "Image", "source": {"reference": "registry/x", "sizeLimit": "2Mi"}}
IMPORTED: dict[str, Any] = {
    "name": "x",
    "type": "PersistentVolumeClaim",
    "source": {"name": "x", "import": {"http": {"url": "http://server/x"}}},
}
SIGNED = {**IMPORTED, "source": {"name": "x", "import": {"http": {"url": "http://server/x", "checksum": "sha256:0"}}}}
EPHEMERAL: dict[str, Any] = {"name": "x", "type": "PersistentVolumeClaim", "source": {"name": "x", "ephemeral": True, "sizeLimit": "2Mi"}}


@pytest.mark.parametrize("disk", [BLANK, OVERLAID, EPHEMERAL, {**OVERLAID, "readOnly": True}])
def test_disk_with_an_overlay_needs_a_launcher_that_makes_it(disk: dict[str, Any]) -> None:
    for vm in (a_vm([ROOT, disk], [ROOT]), a_vm([ROOT], [ROOT, disk])):
        assert hot_plug.live(vm) == ()
        vm["status"]["domain"]["liveChanges"] = [hot_plug.OVERLAY]
        assert hot_plug.live(vm) == ("x",)


@pytest.mark.parametrize(
    ("disk", "expected"),
    [
        (DATA, [("attachment", "disks", "data", False)]),
        ({**DATA, "readOnly": True}, [("attachment", "disks", "data", True)]),
        (BLANK, [("attachment-overlay", "disks", "x.overlay", False)]),
        (OVERLAID, [("attachment", "images", "x", True), ("attachment-overlay", "disks", "x.overlay", False)]),
        (EPHEMERAL, [("attachment", "disks", "x", True), ("attachment-overlay", "disks", "x.overlay", False)]),
        ({**OVERLAID, "readOnly": True}, [("attachment", "images", "x", True)]),
    ],
)
def test_pod_gets_content_read_only_below_an_overlay(disk: dict[str, Any], expected: list[tuple[str, str, str, bool]]) -> None:
    (full,) = disks.defaulted({"devices": {"disks": [disk]}})
    found = [(Path(each.source).name, Path(each.parent).name, each.name, each.read_only) for each in hot_plug.mounts_of(full)]
    assert found == expected


def test_new_disks_count_if_the_launcher_takes_them() -> None:
    vm = a_vm([ROOT, BLANK], [ROOT])
    assert running.domains_of(hot_plug.with_added(vm))[1]["devices"]["disks"] == [ROOT]
    vm["status"]["domain"]["liveChanges"] = [hot_plug.OVERLAY]
    assert running.domains_of(hot_plug.with_added(vm))[1]["devices"]["disks"] == [ROOT, BLANK]
    assert vm["status"]["running"]["domain"]["devices"]["disks"] == [ROOT]
    vm["spec"]["domain"]["memory"] = {"guest": "2Gi"}
    assert running.domains_of(hot_plug.with_added(vm))[1]["memory"] == {"guest": "1Gi"}


def test_disks_without_claims_wait_for_them() -> None:
    found = [{"name": each, "reason": reason} for each, reason in (("a", "ClaimNotFound"), ("b", "ClaimTerminating"), ("c", "DiskInUse"))]
    assert hot_plug.without_claims(a_vm([ROOT], None, *found)) == tuple(found[:2])


def a_drive(medium: str | None = None, **more: Any) -> dict[str, Any]:
    return {"name": "tray", "device": "cdrom", **({"type": "PersistentVolumeClaim", "source": {"name": medium}} if medium else {}), **more}


IMAGE: dict[str, Any] = {"type": "Image", "source": {"reference": "registry/x", "path": "disk/x.iso"}}


@pytest.mark.parametrize(
    ("desired", "runs", "expected"),
    [
        (a_drive("a"), a_drive(), [["tray"], [], []]),
        (a_drive(), a_drive("a"), [[], ["tray"], []]),
        (a_drive("b"), a_drive("a"), [[], ["tray"], []]),
        (a_drive("a"), a_drive("a"), [[], [], ["tray"]]),
        (a_drive(), a_drive(**IMAGE), [[], ["tray"], []]),
        (a_drive(**IMAGE), a_drive(), [["tray"], [], []]),
        (a_drive(**IMAGE), a_drive(**IMAGE), [[], [], ["tray"]]),
        (a_drive("a"), a_drive(**IMAGE), [[], ["tray"], []]),
        (a_drive(type="Secret", source={"name": "a"}), a_drive(), [[], [], []]),
        (a_drive(), a_drive(type="Plugin", source={"plugin": "p"}), [[], [], []]),
        (a_drive(type="Secret", source={"name": "b"}), a_drive("a"), [[], [], ["tray"]]),
        (a_drive(type="Secret", source={"name": "b"}), a_drive(type="Secret", source={"name": "a"}), [[], [], []]),
        (a_drive("a", bootOrder=1), a_drive(bootOrder=1), [["tray"], [], []]),
        (a_drive("a", bootOrder=1), a_drive(), [[], [], []]),
        (a_drive(bootOrder=1), a_drive("a"), [[], [], ["tray"]]),
        (a_drive("a"), None, [[], [], []]),
        (None, a_drive("a"), [[], [], ["tray"]]),
        (a_disk("tray"), a_drive(), [[], [], []]),
    ],
)
def test_medium_of_a_drive_comes_and_goes(desired: Any, runs: Any, expected: list[list[str]]) -> None:
    vm = a_vm([ROOT, *([desired] if desired else [])], [ROOT, *([runs] if runs else [])])
    found = names(hot_plug.added(vm), hot_plug.removed(vm), hot_plug.kept(vm))
    assert [[each for each in disks if each != "root"] for disks in found] == expected
    assert hot_plug.live(vm) == ()
    vm["status"]["domain"]["liveChanges"] = ["disk.medium"]
    assert hot_plug.live(vm) == tuple(expected[0] + expected[1])


def test_another_medium_comes_when_the_old_one_is_ejected() -> None:
    vm = a_vm([ROOT, a_drive("b", ioTune={"totalIopsSec": 5})], [ROOT, a_drive("a", ioTune={"totalIopsSec": 5})])
    vm["status"]["domain"]["liveChanges"] = ["disk.medium"]
    assert live_changes.rest(vm) == ()
    hot_plug.record(vm)
    assert vm["status"]["running"]["domain"]["devices"]["disks"][1]["source"] == {"name": "a"}
    vm["status"]["changes"] = [{"path": hot_plug.path_of("tray"), "state": "Applied"}]
    live_changes.record(vm)
    assert vm["status"]["running"]["domain"]["devices"]["disks"] == [ROOT, a_drive(ioTune={"totalIopsSec": 5})]
    vm["status"]["volumeStatus"] = [an_entry(vm, a_drive("b"))]
    hot_plug.record(vm)
    assert "running" not in vm["status"]


def test_other_drives_keep_their_media() -> None:
    other, new = a_drive("a", name="other"), a_drive("b", name="other")
    vm = a_vm([DATA, new, {**new, "name": "cdrom"}], [other, a_drive(name="cdrom")])
    vm["status"]["running"]["domain"]["devices"]["rng"] = {"model": "none"}
    hot_plug.take(vm, ["data"])
    devices = {"disks": [DATA, other, a_drive(name="cdrom")], "rng": {"model": "none"}}
    assert vm["status"]["running"]["domain"] == {"memory": {"guest": "1Gi"}, "devices": devices}


@pytest.mark.parametrize(
    ("disk", "content", "reference", "directory"),
    [
        (DATA, "data", "", layout.DISKS_DIRECTORY),
        ({**DATA, "source": {"name": "Data"}}, "data", "", layout.DISKS_DIRECTORY),
        (IMPORTED, 'x import:{"http": {"url": "http://server/x"}}', "", layout.DISKS_DIRECTORY),
        (SIGNED, 'x import:{"http": {"checksum": "sha256:0", "url": "http://server/x"}}', "", layout.DISKS_DIRECTORY),
        (a_drive(**IMAGE), "image:registry/x", "registry/x", layout.IMAGES_DIRECTORY),
        (a_drive(type="Image"), "image:", "", layout.IMAGES_DIRECTORY),
        (a_drive(), "", "", layout.DISKS_DIRECTORY),
        (BLANK, f"overlay:{1 << 20}", "", layout.DISKS_DIRECTORY),
        (OVERLAID, f"image:registry/x overlay:{2 << 20}", "registry/x", layout.IMAGES_DIRECTORY),
        (EPHEMERAL, f"x overlay:{2 << 20}", "", layout.DISKS_DIRECTORY),
        ({"name": "x", "type": "NBD", "source": {"reference": "registry/x"}}, "", "", layout.DISKS_DIRECTORY),
    ],
)
def test_content_of_a_disk_has_its_place_in_the_pod(disk: dict[str, Any], content: str, reference: str, directory: str) -> None:
    (full,) = disks.defaulted({"devices": {"disks": [disk]}})
    assert hot_plug.content_of(full) == content
    assert hot_plug.reference_of(full) == reference
    assert hot_plug.directory_of(full) == directory


@pytest.mark.parametrize("volume", [{"attachPodUID": ""}, {"attachPodName": "virt-launcher-testvm-volume-zzzzz"}, {}])
def test_record_without_the_pods_uid_or_name_does_not_count(volume: dict[str, str]) -> None:
    vm = a_vm([ROOT, DATA], [ROOT])
    right = an_entry(vm, DATA)
    vm["status"]["volumeStatus"] = [{**right, "hotplugVolume": {**right["hotplugVolume"], **volume}}]
    (full,) = hot_plug.added(vm)
    assert (hot_plug.pod_of(vm, full) is None) is bool(volume)


def test_record_without_an_edit_changes_nothing() -> None:
    vm = a_vm([ROOT, DATA])
    before = copy.deepcopy(vm)
    hot_plug.record(vm)
    assert vm == before


@pytest.mark.parametrize("is_recorded", [False, True])
def test_virt_handler_ejects_only_media_that_are_not_desired(*, is_recorded: bool) -> None:
    old = a_vm([ROOT, a_drive("b")], [ROOT, a_drive("a")])
    if is_recorded:  # virt-api copies the new medium in the write that ejects the old one
        empty = a_vm([ROOT, a_drive("b")], [ROOT, a_drive()])
        old["status"]["volumeStatus"] = [an_entry(empty, a_drive("b"))]

    def with_drive(drive: dict[str, Any]) -> dict[str, Any]:
        running = {**old["status"]["running"], "domain": {"memory": {"guest": "1Gi"}, "devices": {"disks": [ROOT, drive]}}}
        return {**old, "status": {**old["status"], "running": running}}

    assert live_changes.follows(old, with_drive(a_drive("a")))
    assert live_changes.follows(old, with_drive(a_drive())) is not is_recorded
    assert not live_changes.follows(old, with_drive(a_drive("c")))
    now = {**old, "status": {key: value for key, value in old["status"].items() if key != "running"}}
    assert live_changes.follows(old, now) is is_recorded


@pytest.mark.parametrize("form", ["spec", "running"])
def test_machines_with_xml_need_a_restart(form: str) -> None:
    vm = a_vm([ROOT, DATA], [ROOT, LOGS])
    (vm["spec"] if form == "spec" else vm["status"]["running"])["domainXML"] = "<domain/>"
    assert names(hot_plug.added(vm), hot_plug.removed(vm), hot_plug.kept(vm)) == [[], [], []]


def test_record_of_a_pod_copies_its_disk_to_the_running_form() -> None:
    vm = a_vm([ROOT, DATA, LOGS], [ROOT])
    hot_plug.record(vm)
    assert [each["name"] for each in vm["status"]["running"]["domain"]["devices"]["disks"]] == ["root"]
    vm["status"]["volumeStatus"] = [an_entry(vm, DATA)]
    hot_plug.record(vm)
    assert vm["status"]["running"]["domain"]["devices"]["disks"] == [ROOT, DATA]
    vm["status"]["volumeStatus"].append(an_entry(vm, LOGS))
    hot_plug.record(vm)
    assert "running" not in vm["status"]


@pytest.mark.parametrize("field", ["podUID", "disk", "claim"])
def test_record_of_another_pods_guest_or_claim_does_not_count(field: str) -> None:
    vm = a_vm([ROOT, DATA], [ROOT])
    vm["status"]["volumeStatus"] = [an_entry(vm, DATA)]
    match field:
        case "podUID":
            vm["status"]["podUID"] = "3b0a1c1e-0000-4000-8000-000000000001"
        case "disk":
            vm["status"]["volumeStatus"][0]["name"] = "other"
        case _:
            vm["spec"]["domain"]["devices"]["disks"][1] = {**DATA, "source": {"name": "other"}}
    hot_plug.record(vm)
    assert [each["name"] for each in vm["status"]["running"]["domain"]["devices"]["disks"]] == ["root"]


def test_claim_of_another_disk_of_the_running_form_is_not_copied() -> None:
    new, old = a_disk("new", source={"name": "data"}), a_disk("old", source={"name": "data"}, readOnly=True)
    vm = a_vm([ROOT, new], [ROOT, old])
    vm["status"]["volumeStatus"] = [an_entry(vm, new)]
    hot_plug.record(vm)
    assert vm["status"]["running"]["domain"]["devices"]["disks"] == [ROOT, old]
    hot_plug.take(vm, ["old"])
    hot_plug.record(vm)
    assert "running" not in vm["status"]


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ({"name": "a", "serial": "S"}, "a"),
        ({"name": "z", "serial": "S"}, "z"),
        ({"name": "a", "serial": "T"}, ""),
        ({"name": "z", "wwn": "5000C50015EA71AC"}, "z"),
        ({"name": "new", "serial": "S"}, ""),
    ],
)
def test_identity_of_a_new_disk_is_found_in_the_guest(runs: dict[str, str], expected: str) -> None:
    new = a_disk("new", serial="S", wwn="5000c50015ea71ac")
    assert hot_plug.user_of_identity(a_vm([ROOT, new], [ROOT, a_disk(**runs)]), new) == expected


def test_taken_disks_have_the_desired_order_and_others_stay() -> None:
    vm = a_vm([DATA, ROOT], [ROOT, LOGS])
    hot_plug.take(vm, ["data"])
    assert vm["status"]["running"]["domain"]["devices"]["disks"] == [DATA, ROOT, LOGS]
    hot_plug.take(vm, ["logs"])
    assert "running" not in vm["status"]


def test_disks_without_a_name_keep_their_default_name() -> None:
    unnamed = {key: value for key, value in ROOT.items() if key != "name"}
    vm = a_vm([unnamed, DATA, LOGS], [unnamed])
    hot_plug.take(vm, ["data"])
    assert vm["status"]["running"]["domain"]["devices"]["disks"] == [{"name": "disk0", **unnamed}, DATA]


def test_block_claim_waits_for_the_next_start() -> None:
    vm = a_vm([ROOT, DATA], [ROOT], {"name": "data", "phase": "Pending", "reason": hot_plug.NEEDS_RESTART})
    assert hot_plug.live(vm) == ()


def test_released_disk_leaves_the_running_form() -> None:
    vm = a_vm([ROOT], [ROOT, DATA, LOGS])
    vm["status"]["changes"] = [
        {"path": hot_plug.path_of("data"), "state": "Applied"},
        {"path": hot_plug.path_of("logs"), "state": "Failed"},
    ]
    live_changes.record(vm)
    assert vm["status"]["running"]["domain"]["devices"]["disks"] == [ROOT, LOGS]
    assert [each["path"] for each in vm["status"]["changes"]] == [hot_plug.path_of("logs")]


def test_virt_handler_takes_only_removed_disks_from_running_form() -> None:
    old = a_vm([ROOT, a_disk("new")], [ROOT, DATA, LOGS])
    runs = {"memory": {"guest": "1Gi"}}

    def with_disks(*found: dict[str, Any]) -> dict[str, Any]:
        status = {**old["status"], "running": {"generation": 1, "domain": {**runs, "devices": {"disks": list(found)}}}}
        return {**old, "status": status}

    for allowed in ((ROOT, DATA, LOGS), (ROOT, LOGS), (ROOT,)):
        assert live_changes.follows(old, with_disks(*allowed)), allowed
    for refused in ((DATA, LOGS), (ROOT, DATA, LOGS, a_disk("new")), (ROOT, {**LOGS, "readOnly": True}), (ROOT, a_disk("other"))):
        assert not live_changes.follows(old, with_disks(*refused)), refused
    old["status"]["volumeStatus"] = [an_entry(old, a_disk("new"))]  # virt-api copies this disk in any write
    assert live_changes.follows(old, with_disks(ROOT, a_disk("new"), DATA, LOGS))
    assert not live_changes.follows(old, with_disks(ROOT, DATA, LOGS))


def test_restart_is_required_only_for_what_does_not_change_live() -> None:
    vm = a_vm([ROOT, DATA, a_disk("boot", bootOrder=1)], [ROOT, LOGS])
    assert [str(each) for each in live_changes.rest(vm)] == ["spec.domain.devices.disks[boot] (added)"]
    vm["status"]["changes"] = [{"path": hot_plug.path_of("logs"), "state": "Failed"}]
    assert [str(each) for each in live_changes.rest(vm)] == [
        "spec.domain.devices.disks[logs] (removed)",
        "spec.domain.devices.disks[boot] (added)",
    ]


def test_only_a_recorded_attachment_pod_may_import() -> None:
    vm = a_vm([ROOT, DATA, IMPORTED], [ROOT])
    assert hot_plug.live(vm) == ("data", "x")
    assert hot_plug.importing(vm) == ()
    vm["status"]["volumeStatus"] = [an_entry(vm, DATA), an_entry(vm, IMPORTED)]
    hot_plug.record(vm)
    for desired in ([ROOT, DATA, IMPORTED], [ROOT]):
        found = hot_plug.importing({**vm, "status": {**vm["status"], "running": {"domain": {"devices": {"disks": [ROOT, DATA, IMPORTED]}}}},
                                    "spec": {"domain": {"devices": {"disks": desired}}}})  # fmt: skip
        assert [(disk["name"], pod.uid) for disk, pod in found] == [("x", "2b0a1c1e-0000-4000-8000-000000000001")]


def test_import_is_unfinished_until_the_guest_has_the_disk() -> None:
    vm = a_vm([ROOT, DATA, IMPORTED], [ROOT])
    assert hot_plug.import_barrier(vm) == ""
    vm["status"]["volumeStatus"] = [an_entry(vm, DATA), an_entry(vm, IMPORTED)]
    hot_plug.record(vm)
    for devices in (
        None,
        [{"kind": "disk", "name": "root"}, {"kind": "interface", "name": "x"}],
        [{"kind": "disk", "name": "x", "empty": True}],
    ):
        vm["status"]["devices"] = devices
        assert hot_plug.import_barrier(vm) == "disk 'x': its image is being imported"
    vm["status"]["devices"] = [{"kind": "disk", "name": "x"}]
    assert hot_plug.import_barrier(vm) == ""


def test_another_source_of_an_import_makes_another_pod() -> None:
    other = {**IMPORTED, "source": {"name": "x", "import": {"http": {"url": "http://server/y"}}}}
    found = [hot_plug.pod_name(vm, hot_plug.added(vm)[0]) for vm in (a_vm([each], []) for each in (IMPORTED, other))]
    assert found[0] != found[1]
