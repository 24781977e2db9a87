from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from apiserver.apis.virt.lifecycle import phases
from apiserver.apis.virt.spec import running
from apiserver.apis.virt.spec.described import domain_of, size_of
from apiserver.apis.virt.v1alpha1 import defaults
from apiserver.registry.virt.virtualmachines import VirtualMachineStrategy

Edit = Callable[[dict[str, Any]], None]

ROOT: dict[str, Any] = {"name": "root", "type": "PersistentVolumeClaim", "source": {"name": "root"}}
KEY: dict[str, Any] = {"sshPublicKey": {"source": {"secret": {"secretName": "a"}}, "propagationMethod": {"noCloud": {}}}}
DATA: dict[str, Any] = {"name": "data", "type": "PersistentVolumeClaim", "source": {"name": "data"}}


def a_vm(phase: str = "Running", *disks: dict[str, Any], **spec: Any) -> dict[str, Any]:
    domain = {"cpu": {"cores": 1}, "memory": {"guest": "1Gi"}, "devices": {"disks": copy.deepcopy(list(disks or (ROOT,)))}}
    vm: dict[str, Any] = {"metadata": {"name": "vm", "namespace": "ns", "uid": "u", "generation": 4}, "spec": {"domain": domain, **spec}}
    defaults.default_virtual_machine(vm)
    return {**vm, "status": {"phase": phase, "attempt": 1, "attempts": [{"number": 1}]}}


def edited(vm: dict[str, Any], edit: Edit) -> dict[str, Any]:
    new = copy.deepcopy(vm)
    edit(new["spec"])
    defaults.default_virtual_machine(new)
    VirtualMachineStrategy().prepare_for_update(new, vm)
    new["metadata"]["generation"] += new["spec"] != vm["spec"]
    return new


def with_status(vm: dict[str, Any], **status: Any) -> dict[str, Any]:
    new = {**copy.deepcopy(vm), "status": {**copy.deepcopy(vm["status"]), **status}}
    VirtualMachineStrategy().prepare_for_status_update(new, vm)
    return new


def cores(number: int) -> Edit:
    return lambda spec: spec["domain"]["cpu"].update(cores=number)


def add(disk: dict[str, Any]) -> Edit:
    return lambda spec: spec["domain"]["devices"]["disks"].append(copy.deepcopy(disk))


def told(vm: dict[str, Any]) -> list[str]:
    return [str(each) for each in running.differences(vm)]


@pytest.mark.parametrize("phase", sorted(phases.VM_TRANSITIONS))
def test_edit_copies_running_hardware_only_with_a_guest(phase: str) -> None:
    vm = a_vm(phase)
    new = edited(vm, cores(2))
    has_guest = phase in phases.WITH_GUEST
    assert domain_of(new)["cpu"]["cores"] == (1 if has_guest else 2)
    assert size_of(new)["cpu"]["cores"] == (1 if has_guest else 2)
    assert ("running" in new["status"]) is has_guest
    assert told(new) == (["spec.domain.cpu.cores"] if has_guest else [])


def test_size_of_the_pod_stays_while_there_is_a_guest() -> None:
    old, new = a_vm(), a_vm()
    old["status"]["podResize"] = {"guestMemoryBytes": 1}
    running.keep(new, old, has_guest=True)
    assert new["status"]["podResize"] == {"guestMemoryBytes": 1}
    new["status"]["podResize"] = {"guestMemoryBytes": 2}
    running.keep(new, old, has_guest=True)
    assert new["status"]["podResize"] == {"guestMemoryBytes": 2}
    running.keep(new, old, has_guest=False)
    assert "podResize" not in new["status"]


def test_a_suspended_guest_keeps_the_names_of_its_disks() -> None:
    """A disk between two others was removed, so a new count would name the wrong ones."""
    vm = a_vm()
    vm["status"]["devices"] = [{"kind": "disk", "name": "root", "target": "vdc"}]
    gone = {key: each for key, each in vm["status"].items() if key != "devices"} | {"phase": "Suspended", "managedSave": {"id": "i"}}
    suspended = {**copy.deepcopy(vm), "status": copy.deepcopy(gone)}
    VirtualMachineStrategy().prepare_for_status_update(suspended, vm)
    assert suspended["status"]["devices"] == vm["status"]["devices"]
    assert with_status(suspended, phase="Scheduled")["status"]["devices"] == vm["status"]["devices"]
    fresh = {**copy.deepcopy(suspended), "status": {"phase": "Stopped"}}
    VirtualMachineStrategy().prepare_for_status_update(fresh, suspended)
    assert "devices" not in fresh["status"]


def test_a_machine_that_was_not_edited_pays_nothing() -> None:
    vm = a_vm()
    assert edited(vm, lambda spec: spec.update(runStrategy="Always"))["status"] == vm["status"]
    assert running.spec_of(vm) is vm["spec"]


def test_copy_keeps_its_generation_through_further_edits() -> None:
    first = edited(a_vm(), cores(2))
    assert first["status"]["running"]["generation"] == 4
    assert first["status"]["running"]["domain"]["cpu"]["cores"] == 1
    second = edited(first, add(DATA))
    assert second["status"]["running"] == first["status"]["running"]
    assert told(second) == ["spec.domain.devices.disks[data] (added)", "spec.domain.cpu.cores"]


@pytest.mark.parametrize("same", ["1Gi", "1024Mi"])
def test_an_edit_back_to_what_runs_takes_the_copy_away(same: str) -> None:
    changed = edited(a_vm(), lambda spec: spec["domain"]["memory"].update(guest="2Gi"))
    assert told(changed) == ["spec.domain.memory.guest"]
    back = edited(changed, lambda spec: spec["domain"]["memory"].update(guest=same))
    assert "running" not in back["status"]
    assert told(back) == []


@pytest.mark.parametrize(
    ("edit", "names"),
    [
        (add(DATA), ["disks[data] (added)"]),
        (lambda spec: spec["domain"]["devices"]["disks"].clear(), ["disks[root] (removed)"]),
        (lambda spec: spec["domain"]["devices"]["disks"][0].update(readOnly=True), ["disks[root]"]),
        (
            lambda spec: spec["domain"]["devices"].update(disks=[{**ROOT, "name": "other"}, DATA]),
            ["disks[root] (removed)", "disks[other] (added)", "disks[data] (added)"],
        ),
        (lambda spec: spec["domain"]["devices"].update(interfaces=[]), ["interfaces[default] (removed)"]),
        (lambda spec: spec["domain"]["devices"].update(graphics=[]), ["graphics"]),
        (lambda spec: spec["domain"]["devices"].update(graphics=[{"type": "spice"}]), ["graphics"]),
        (lambda spec: spec["domain"]["devices"].update(watchdog={"action": "poweroff"}), ["watchdog"]),
        (lambda spec: spec["domain"]["devices"].update(video={"type": "bochs"}), ["video.type"]),
        (lambda spec: spec["domain"]["devices"].update(disks=[ROOT, ROOT]), ["disks"]),
        (lambda spec: spec["domain"]["devices"].update(gpus=[{"name": "g", "deviceName": "a/b"}]), ["gpus[g] (added)"]),
    ],
)
def test_devices_are_named(edit: Edit, names: list[str]) -> None:
    assert told(edited(a_vm(), edit)) == [f"spec.domain.devices.{each}" for each in names]


def test_reordered_disks_count_as_a_difference() -> None:
    vm = a_vm("Running", ROOT, DATA)
    assert told(edited(vm, lambda spec: spec["domain"]["devices"]["disks"].reverse())) == ["spec.domain.devices.disks"]


def test_displays_added_to_none_are_reported_as_a_list() -> None:
    vm = a_vm()
    vm["spec"]["domain"]["devices"]["graphics"] = []
    new = edited(vm, lambda spec: spec["domain"]["devices"].update(graphics=[{"type": "vnc"}]))
    assert told(new) == ["spec.domain.devices.graphics"]


def test_fields_outside_the_domain_that_stay_are_not_named() -> None:
    vm = a_vm(accessCredentials=[KEY])
    assert told(edited(vm, cores(2))) == ["spec.domain.cpu.cores"]
    assert told(edited(vm, lambda spec: spec.update(accessCredentials=[]))) == ["spec.accessCredentials"]
    none = a_vm(accessCredentials=[])
    assert told(edited(none, lambda spec: (cores(2)(spec), spec.pop("accessCredentials"))[0])) == ["spec.domain.cpu.cores"]
    absent = a_vm()
    assert told(edited(absent, lambda spec: (cores(2)(spec), spec.update(accessCredentials=[]))[0])) == ["spec.domain.cpu.cores"]


def test_fields_outside_the_domain_belong_to_the_guest_too() -> None:
    new = edited(a_vm(), lambda spec: spec.update(accessCredentials=[KEY], domainXML="<domain/>"))
    assert told(new) == ["spec.domainXML", "spec.accessCredentials"]
    spec = running.spec_of(new)
    assert "accessCredentials" not in spec
    assert "domainXML" not in spec


def test_fields_not_bound_to_the_guest_come_from_the_spec() -> None:
    def edit(spec: dict[str, Any]) -> None:
        cores(2)(spec)
        spec["terminationGracePeriodSeconds"] = 5

    new = edited(a_vm(terminationGracePeriodSeconds=30), edit)
    assert running.spec_of(new)["terminationGracePeriodSeconds"] == 5


@pytest.mark.parametrize("phase", sorted(phases.VM_TRANSITIONS))
def test_the_copy_lasts_as_long_as_the_guest(phase: str) -> None:
    vm = with_status(edited(a_vm(), cores(2)), devices=[{"kind": "disk", "name": "root"}])
    new = with_status(vm, phase=phase)
    assert ("running" in new["status"]) is (phase in phases.WITH_GUEST)
    assert ("devices" in new["status"]) is (phase in phases.WITH_GUEST)
    assert domain_of(new)["cpu"]["cores"] == (1 if phase in phases.WITH_GUEST else 2)


def test_no_writer_of_a_status_changes_the_copy() -> None:
    vm = edited(a_vm(), cores(2))
    kept = vm["status"]["running"]
    assert with_status(vm, running={"generation": 1, "domain": {"cpu": {"cores": 64}}})["status"]["running"] == kept
    assert with_status(vm, running=None)["status"]["running"] == kept
    stale = {**copy.deepcopy(vm), "status": {key: each for key, each in vm["status"].items() if key != "running"}}
    running.keep(stale, vm, has_guest=True)
    assert stale["status"]["running"] == kept
    assert "running" not in with_status(a_vm(), running=kept)["status"]


def test_a_status_of_no_shape_is_left_to_others() -> None:
    vm: dict[str, Any] = {"spec": {"domain": {"cpu": {"cores": 3}}}, "status": {"phase": "Running", "running": "text"}}
    assert domain_of(vm) == {"cpu": {"cores": 3}}
    vm["status"] = None
    running.keep(vm, {}, has_guest=True)
    assert vm["status"] is None


def test_words_are_one_line_of_bounded_length() -> None:
    few = running.words([running.Difference("a"), running.Difference("b", "added")])
    assert few == "a, b (added)"
    many = running.words([running.Difference(f"spec.{'x' * 200}\n{number}") for number in range(100)])
    assert len(many) <= running.MAX_WORDS
    assert "\n" not in many
    assert running.words([running.Difference(f"f{number}") for number in range(10)]).endswith(", f7, 2 more")
    assert running.words([running.Difference(f"f{number}") for number in range(8)]).endswith(", f6, f7")


def test_a_place_on_the_nodes_disk_is_no_hardware() -> None:
    """A running pod gets it without a restart, but keeps a claim."""
    for desired, runs, found in (
        ({"nodeDisk": {}}, None, ()),
        (None, {"nodeDisk": {}}, ()),
        ({"nodeDisk": {}}, {"claimName": "c"}, (running.Difference("spec.managedSave"),)),
    ):
        assert running.between({"domain": {}, "managedSave": desired}, {"domain": {}, "managedSave": runs}) == found
