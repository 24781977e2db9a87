from __future__ import annotations

import copy
import itertools
from datetime import UTC, datetime
from typing import Any

import pytest

from apiserver.apis.virt.lifecycle import phases
from apiserver.apis.virt.rights.node_rights import machines
from apiserver.apis.virt.rights.node_rights.machines import validate
from apiserver.apis.virt.v1alpha1 import types
from apiserver.registry.virt.virtualmachines import VirtualMachineStrategy
from handler.network.binding import Interface
from handler.reconcilers.guests import guest_status
from tests.unit.handler.reconcilers.builders import a_migration, a_running, a_vm

NOW = datetime(2026, 11, 22, tzinfo=UTC)
MOMENT = "2026-11-22T00:00:00Z"
FIELDS = sorted(each.alias or name for name, each in types.VirtualMachineStatus.model_fields.items())
FOLLOWERS = {
    phases.SCHEDULED: {"Scheduled", "Running", "Stopping", "Stopped", "Succeeded", "Failed"},
    phases.RUNNING: {"Running", "Stopping", "Stopped", "Succeeded", "Failed", "Suspended"},
    phases.STOPPING: {"Stopping", "Stopped", "Succeeded", "Failed"},
    phases.UNKNOWN: {"Unknown", "Scheduled", "Running", "Stopping", "Stopped", "Succeeded", "Failed", "Suspended"},
}
RESULTS = {"Stopped": "Stopped", "Succeeded": "Succeeded", "Failed": "Failed", "Suspended": "Suspended"}
REPORT = {
    "observedGeneration",
    "conditions",
    "domain",
    "interfaces",
    "guest",
    "fsFreezeStatus",
    "graphics",
    "vsock",
    "devices",
    "imports",
    "changes",
}
MAY: dict[str, set[str]] = {
    "Scheduled": {"conditions", "imports"},
    "Unknown": {"conditions", "imports"},
    "Running": REPORT,
    "Stopping": REPORT,
    "Stopped": {"observedGeneration", "conditions"},
    "Succeeded": {"observedGeneration", "conditions"},
    "Failed": {"observedGeneration", "conditions"},
    "Suspended": {"observedGeneration", "conditions"},
}
"""Fields that may take the value below, by the phase after the write."""
SAMPLES: dict[str, Any] = {
    "attempt": 2,
    "attempts": [{"number": 1, "podName": "p", "nodeName": "n"}, {"number": 2}],
    "calls": [{"id": "c", "verb": "stop"}],
    "conditions": [{"type": "Ready", "status": "False"}],
    "cpu": {"model": "EPYC"},
    "domain": {"state": "paused"},
    "graphics": [{"type": "spice"}],
    "guest": {"hostname": "h"},
    "imports": [{"disk": "d"}],
    "fsFreezeStatus": "frozen",
    "interfaces": [{"name": "default"}],
    "managedSave": {"id": "o"},
    "migration": {"name": "m", "uid": "mig-1"},
    "nodeName": "n2",
    "observedGeneration": 3,
    "operations": [{"id": "o", "number": 1, "action": "Reset"}],
    "pause": {"wanted": True, "attempt": 1},
    "phase": "Pending",
    "phaseTransitionTimestamps": [{"phase": "Failed", "time": MOMENT}],
    "podIP": "10.0.0.66",
    "podName": "p2",
    "podUID": "pod-2",
    "request": {"action": "Stop", "attempt": 1},
    "runStrategyGeneration": 7,
    "vsock": {"cid": 4},
    "devices": [{"kind": "disk", "name": "root", "target": "vda"}],
    "running": {"generation": 1},
    "changes": [{"path": "spec.domain", "state": "Applied"}],
    "volumeStatus": [{"name": "data"}],
    "podResize": {"reason": "Deferred"},
}
PLACE = (
    "nodeName",
    "podIP",
    "domain",
    "interfaces",
    "guest",
    "fsFreezeStatus",
    "graphics",
    "vsock",
    "imports",
    "devices",
    "changes",
    "volumeStatus",
    "podResize",
    "running",
)


def a_write(node: str, old: dict[str, Any], new: dict[str, Any], migration: dict[str, Any] | None = None) -> machines.MachineWrite:
    return machines.MachineWrite(node, old, new, NOW, migration)


def paths(write: machines.MachineWrite) -> set[str]:
    return {each.path for each in validate(write)}


def stored(phase: str, **status: Any) -> dict[str, Any]:
    return a_vm(phase, podIP="10.0.0.9", phaseTransitionTimestamps=[{"phase": phase, "time": MOMENT}], observedGeneration=2, **status)


def written(old: dict[str, Any], phase: str, /, **changes: Any) -> dict[str, Any]:
    """Return the VM that an honest virt-handler writes to enter ``phase``: the smallest status, with ``changes``."""
    new = copy.deepcopy(old)
    new["status"] = phases.enter(new["status"], phase, NOW)
    if phase in RESULTS:
        new["status"]["attempts"][-1] |= {"endTime": MOMENT, "result": RESULTS[phase]}
        for field in PLACE:
            new["status"].pop(field, None)
    new["status"] |= changes
    return new


def test_every_field_of_the_schema_is_tried() -> None:
    assert sorted(SAMPLES) == FIELDS
    assert set(FOLLOWERS) == phases.HANDLED


@pytest.mark.parametrize(("before", "after"), list(itertools.product(phases.VM_PHASES, phases.VM_PHASES)))
def test_only_phases_of_virt_handler_are_left_and_entered(before: str, after: str) -> None:
    old = stored(before)
    found = paths(a_write("n", old, written(old, after)))
    assert found == (set() if after in FOLLOWERS.get(before, set()) else {"status.phase"})


@pytest.mark.parametrize(
    ("before", "after", "field"),
    [(before, after, field) for before, then in FOLLOWERS.items() for after in sorted(then) for field in FIELDS],
)
def test_only_the_fields_of_a_phase_are_written(before: str, after: str, field: str) -> None:
    old = stored(before)
    new = written(old, after, **{field: SAMPLES[field]})
    found = paths(a_write("n", old, new))
    if field in MAY[after]:
        assert found == set()
    else:
        assert any(each == f"status.{field}" or each.startswith(f"status.{field}[") for each in found)


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("node", ["n2", "node1", "N", ""])
def test_another_node_writes_nothing(field: str, node: str) -> None:
    old = stored("Running")
    sample = "Failed" if field == "phase" else SAMPLES[field]
    new = written(old, "Running", **{field: sample})
    found = paths(a_write(node, old, new, a_migration("Running")))
    assert found
    assert found & {"status.nodeName", "status.podName", "status.migration.phase", "status.migration.name"}


def test_another_node_may_not_even_write_what_is_there() -> None:
    assert paths(a_write("n2", stored("Running"), stored("Running"))) == {"status.nodeName"}


@pytest.mark.parametrize("after", sorted(MAY))
@pytest.mark.parametrize("field", sorted(each.alias or name for name, each in types.Attempt.model_fields.items()))
def test_only_run_and_end_of_the_current_attempt_are_written(after: str, field: str) -> None:
    old = stored("Unknown")
    new = written(old, after)
    new["status"]["attempts"][-1][field] = 7 if field == "number" else "Failed" if field == "result" else MOMENT
    allowed = {
        "Running": {"runningTime"},
        "Stopping": {"runningTime"},
        "Stopped": {"endTime", "message"},
        "Succeeded": {"endTime", "message"},
        "Suspended": {"endTime", "message"},
    }
    allowed["Failed"] = {"endTime", "message", "result"}
    found = paths(a_write("n", old, new))
    assert (found == set()) == (field in allowed.get(after, set())), found


@pytest.mark.parametrize("field", ["runningTime", "endTime", "result", "message"])
def test_recorded_attempt_fields_cannot_be_changed(field: str) -> None:
    old = stored("Running")
    old["status"]["attempts"][-1][field] = "Stopped" if field == "result" else MOMENT
    for value in ("Failed" if field == "result" else "2026-11-22T01:00:00Z", None):
        new = written(old, "Failed")
        new["status"]["attempts"][-1][field] = value
        assert f"status.attempts[1].{field}" in paths(a_write("n", old, new))


def test_earlier_attempts_are_immutable_and_none_added_or_lost() -> None:
    old = stored("Running", attempt=2)
    old["status"]["attempts"].append({"number": 2, "podName": "p"})
    new = written(old, "Running")
    new["status"]["attempts"][0]["runningTime"] = MOMENT
    assert paths(a_write("n", old, new)) == {"status.attempts[1]"}
    for attempts in ([], old["status"]["attempts"][1:], [*old["status"]["attempts"], {"number": 3}], old["status"]["attempts"][::-1]):
        assert paths(a_write("n", old, written(old, "Running", attempts=attempts))) == {"status.attempts"}


@pytest.mark.parametrize("result", [None, "Stopped", "Succeeded"])
def test_an_end_has_the_result_of_its_phase(result: str | None) -> None:
    old = stored("Running")
    new = written(old, "Failed")
    new["status"]["attempts"][-1]["result"] = result
    assert paths(a_write("n", old, new)) == {"status.attempts[1].result"}


@pytest.mark.parametrize("phase", sorted(RESULTS))
def test_an_end_has_a_time(phase: str) -> None:
    old = stored("Running")
    new = written(old, phase)
    del new["status"]["attempts"][-1]["endTime"]
    assert "status.attempts[1].result" in paths(a_write("n", old, new))


@pytest.mark.parametrize(
    ("moment", "allowed"),
    [
        ("2026-11-22T00:04:59Z", True),
        ("2026-11-21T23:55:01Z", True),
        ("2026-11-22T00:06:00Z", False),
        ("9999-01-01T00:00:00Z", False),
        ("2026-11-21T23:54:00Z", False),
        ("1970-01-01T00:00:00Z", False),
    ],
)
def test_attempt_times_far_from_now_are_refused(moment: str, *, allowed: bool) -> None:
    old = stored("Running")
    for phase, field in (("Failed", "endTime"), ("Running", "runningTime")):
        new = written(old, phase)
        new["status"]["attempts"][-1][field] = moment
        assert paths(a_write("n", old, new)) == (set() if allowed else {f"status.attempts[1].{field}"})


def test_attempt_that_ended_before_its_machine_keeps_its_result() -> None:
    old = stored("Stopping")
    old["status"]["attempts"][-1] |= {"endTime": MOMENT, "result": "Failed"}
    new = written(old, "Stopped", attempts=copy.deepcopy(old["status"]["attempts"]))
    assert paths(a_write(old["status"]["nodeName"], old, new)) == set()


def operated(old: dict[str, Any], after: str, *changes: dict[str, Any]) -> set[str]:
    new = written(old, after)
    for number, change in enumerate(changes):
        new["status"]["operations"][number] |= change
    return paths(a_write("n", old, new))


FINISHED = {"id": "a", "number": 1, "action": "Reset", "attempt": 1, "result": "Failed", "message": "m", "completionTime": MOMENT}
WAITING = {"id": "b", "number": 2, "action": "Reset", "attempt": 1}


@pytest.mark.parametrize("after", sorted(MAY))
def test_node_reports_operations_where_its_guest_runs_or_ends(after: str) -> None:
    old = stored("Unknown", operations=[FINISHED, WAITING])
    done = {"result": "Succeeded", "completionTime": MOMENT}
    found = operated(old, after, {}, done)
    assert found == (set() if after not in ("Scheduled", "Unknown") else {"status.operations"})


@pytest.mark.parametrize("field", sorted(each.alias or name for name, each in types.Operation.model_fields.items()))
def test_of_an_operation_only_its_result_is_written_and_once(field: str) -> None:
    old = stored("Running", operations=[FINISHED, WAITING])
    value = 7 if field in ("number", "attempt", "percent") else "Succeeded" if field == "result" else "Resume" if field == "action" else "x"
    done = {"result": "Succeeded", "completionTime": MOMENT}
    place = "status.operations" if field == "id" else "status.operations[{}].{}"
    ofresult = field in ("result", "message", "completionTime", "percent")
    assert operated(old, "Running", {field: value}, {}) == {place.format("a", field)}
    assert operated(old, "Running", {}, {**done, field: value}) == (set() if ofresult else {place.format("b", field)})


def test_an_operations_progress_is_written_until_it_ends() -> None:
    old = stored("Running", operations=[FINISHED, {**WAITING, "percent": 10}])
    assert operated(old, "Running", {}, {"percent": 20}) == set()
    assert operated(old, "Running", {"percent": 20}, {}) == {"status.operations[a].percent"}


SUSPENDING = {"id": "0b7c1a52", "number": 1, "action": "Suspend", "attempt": 1}


def image(**changes: Any) -> dict[str, Any]:
    return {"id": "0b7c1a52", "claimName": "c", "file": "u/0b7c1a52", "attempt": 1, "nodeName": "n", "time": MOMENT, **changes}


def suspending(phase: str = "Running", **status: Any) -> dict[str, Any]:
    old = stored(phase, operations=[SUSPENDING], **status)
    old["spec"]["managedSave"] = {"claimName": "C"}
    old["metadata"]["uid"] = "u"
    return old


@pytest.mark.parametrize("phase", ["Running", "Unknown"])
def test_a_suspended_machine_has_the_requested_image(phase: str) -> None:
    old = suspending(phase)
    assert paths(a_write("n", old, written(old, "Suspended", managedSave=image()))) == set()


@pytest.mark.parametrize(
    "changes",
    [{"id": "0b7c1a53"}, {"claimName": "other"}, {"file": "u/../x"}, {"attempt": 2}, {"nodeName": "m"}, {"time": "1970-01-01T00:00:00Z"}],
    ids=lambda changes: next(iter(changes)),
)
def test_an_image_is_that_of_the_operation_and_the_claim(changes: dict[str, Any]) -> None:
    old = suspending()
    (field,) = changes
    assert paths(a_write("n", old, written(old, "Suspended", managedSave=image(**changes)))) == {f"status.managedSave.{field}"}


def test_an_image_on_the_nodes_disk_was_requested_there() -> None:
    old = suspending()
    for parameters, wrong in ({"nodeDisk": True}, set()), ({}, {"status.managedSave.claimName"}):
        old["status"]["operations"] = [{**SUSPENDING, "parameters": parameters}]
        new = written(old, "Suspended", managedSave={key: value for key, value in image().items() if key != "claimName"})
        assert paths(a_write("n", old, new)) == wrong


@pytest.mark.parametrize("phase", ["Running", "Stopped", "Failed"])
def test_an_image_comes_only_with_a_suspension(phase: str) -> None:
    old = suspending()
    assert paths(a_write("n", old, written(old, phase, managedSave=image()))) == {"status.managedSave"}
    has = suspending(managedSave=image())
    assert paths(a_write("n", has, written(has, phase, managedSave=None))) == set()


def test_edited_hardware_stays_with_an_image() -> None:
    runs = {"generation": 1, "managedSave": {"claimName": "c"}}
    old = suspending(running=runs)
    old["spec"]["managedSave"] = {"claimName": "edited"}
    new = written(old, "Suspended", managedSave=image(), running=runs)
    assert paths(a_write("n", old, new)) == set()


def test_size_of_the_pod_stays_with_an_image() -> None:
    """The image has the guest's memory, so its next pod must have room for it."""
    old = suspending(podResize={"guestMemoryBytes": 2 << 30})
    for size, wrong in ({"guestMemoryBytes": 2 << 30}, set()), ({"guestMemoryBytes": 9 << 30}, {"status.podResize"}):
        assert paths(a_write("n", old, written(old, "Suspended", managedSave=image(), podResize=size))) == wrong


def test_node_neither_adds_nor_drops_nor_half_reports_operations() -> None:
    old = stored("Running", operations=[FINISHED, WAITING])
    for told in ([], [FINISHED], [WAITING, FINISHED], [FINISHED, WAITING, {**WAITING, "id": "c"}], None):
        assert paths(a_write("n", old, written(old, "Running", operations=told))) == {"status.operations"}
    assert operated(old, "Running", {}, {"message": "m"}) == {"status.operations[b].result"}
    assert operated(old, "Running", {"result": None}, {}) == {"status.operations[a].result"}
    long = stored("Running", operations=[{**FINISHED, "id": "x" * 200}])
    new = written(long, "Running", operations=[{**FINISHED, "id": "x" * 200, "number": 3}])
    assert all(len(str(each)) < 200 for each in validate(a_write("n", long, new)))


def an_edited_machine() -> tuple[dict[str, Any], dict[str, Any]]:
    old = stored("Running")
    before = {**copy.deepcopy(old["spec"]["domain"]), "memory": {"guest": "1Gi"}}
    old["spec"]["domain"]["devices"]["interfaces"] = [{"name": "default", "state": "down"}]
    old["spec"]["domain"]["memory"] = {"guest": "2Gi"}
    old["status"]["running"] = {"generation": 1, "domain": before}
    return old, before


def as_virt_api(old: dict[str, Any], **status: Any) -> machines.MachineWrite:
    """Return virt-handler's write into Running as admission sees it: after virt-api's own changes."""
    new = written(old, "Running", **copy.deepcopy(status))
    VirtualMachineStrategy().prepare_for_status_update(new, old)
    return a_write("n", old, new)


def test_node_may_have_the_settings_of_its_guest_recorded() -> None:
    old, before = an_edited_machine()
    write = as_virt_api(old, changes=[{"path": "spec.domain.devices.interfaces[default].state", "state": "Applied"}])
    domain = write.new["status"]["running"]["domain"]
    assert (domain["devices"]["interfaces"][0]["state"], domain["memory"]) == ("down", before["memory"])
    assert paths(write) == set()
    assert paths(as_virt_api(old, running={"generation": 1, "domain": {}})) == set()


def test_node_may_not_write_another_running_form() -> None:
    old, before = an_edited_machine()
    for domain in ({}, old["spec"]["domain"], {**before, "memory": {"guest": "2Gi"}}):
        assert paths(a_write("n", old, written(old, "Running", running={"generation": 1, "domain": domain}))) == {"status.running"}
    assert paths(a_write("n", old, written(old, "Running", running=None))) == {"status.running"}


@pytest.mark.parametrize("field", PLACE)
def test_an_end_takes_the_place_away(field: str) -> None:
    of = {
        "domain": {"state": "running"},
        "interfaces": [{"name": "default"}],
        "guest": {},
        "fsFreezeStatus": "frozen",
        "graphics": [{"type": "vnc"}],
        "vsock": {"cid": 3},
        "imports": [{"disk": "root"}],
        "devices": [{"kind": "disk", "name": "root"}],
        "running": {"generation": 1, "domain": {}},
        "changes": [{"path": "spec.domain", "state": "Pending"}],
        "volumeStatus": [{"name": "data"}],
        "podResize": {"reason": "Deferred"},
    }
    old = stored("Running", **of)
    new = written(old, "Succeeded", **{field: old["status"][field]})
    assert paths(a_write("n", old, new)) == {f"status.{field}"}


@pytest.mark.parametrize(
    "kind",
    [
        "Ready",
        "Paused",
        "Migratable",
        "DisksReady",
        "NetworkReady",
        "AgentConnected",
        "FilesystemsReady",
        "RebootLoop",
        "RestartRequired",
        "Fake",
        "x" * 300,
    ],
)
@pytest.mark.parametrize("after", sorted(MAY))
def test_conditions_of_others_are_neither_set_nor_removed(after: str, kind: str) -> None:
    settable = (
        {"Ready"}
        | ({"DisksReady", "NetworkReady"} if after not in RESULTS else set())
        | ({"Paused", "Migratable", "AgentConnected", "FilesystemsReady", "RebootLoop"} if MAY[after] is REPORT else set())
    )
    of_a_guest = {"Paused", "Migratable", "DisksReady", "NetworkReady", "AgentConnected", "FilesystemsReady", "RebootLoop"}
    removable = of_a_guest | {"RestartRequired"} if after in RESULTS else set()
    old = stored("Unknown", conditions=[{"type": kind, "status": "True"}])
    changed = written(old, after, conditions=[{"type": kind, "status": "False"}])
    gone = written(old, after, conditions=[])
    assert (paths(a_write("n", old, changed)) == set()) == (kind in settable)
    assert (paths(a_write("n", old, gone)) == set()) == (kind in removable)
    assert all(len(str(each)) < 200 for each in validate(a_write("n", old, gone)))


def test_pod_ip_is_the_pod_network_interfaces_address() -> None:
    default, other = {"name": "default", "ipAddress": "10.0.0.7"}, {"name": "other", "ipAddress": "10.0.0.8"}
    for told in ([default, other], [other, default]):
        old = stored("Running")
        assert paths(a_write("n", old, written(old, "Running", podIP="10.0.0.7", interfaces=told))) == set()
        for address in ("10.0.0.8", None):
            assert paths(a_write("n", old, written(old, "Running", podIP=address, interfaces=told))) == {"status.podIP"}


_ON_POD = {"name": "default", "type": "masquerade"}
_FURTHER = {"name": "lan", "type": "bridge", "network": "lan"}
_PLUGIN = {"name": "private", "type": "plugin", "plugin": "isolated"}


@pytest.mark.parametrize("moves", [False, True])
@pytest.mark.parametrize(
    "order",
    [
        each
        for some in ((_ON_POD,), (_ON_POD, _FURTHER), (_ON_POD, _FURTHER, _PLUGIN), (_FURTHER, _PLUGIN))
        for each in itertools.permutations(some)
    ],
)
def test_virt_handlers_status_is_accepted_in_any_interface_order(order: tuple[dict[str, str], ...], *, moves: bool) -> None:
    old = stored("Running", interfaces=[{"name": "default", "ipAddress": "10.0.0.9"}])
    old["spec"]["domain"]["devices"]["interfaces"] = [{"model": "virtio", **each} for each in order]
    addresses = {"default": ("10.0.0.7", "fd00::7"), "lan": ("192.0.2.9",), "private": ("198.51.100.9",)}
    made = tuple(
        Interface(name, "02:00:00:00:00:09", f"tap-{name}", "virtio", addresses[name], is_own=name == "default")
        for name in (each["name"] for each in order)
    )

    new = {**old, "status": dict(guest_status.running(old, a_running(), made, NOW))}

    assert new["status"]["podIP"] == ("10.0.0.7" if _ON_POD in order else "10.0.0.9")
    found = a_migration("Running", startTime=MOMENT)
    if moves:
        recorded = {key: found["status"][key] for key in machines.RECORD}
        new["status"] |= {"nodeName": "n2", "podName": "p2", "podUID": "pod-2"}
        new["status"]["migration"] = {"name": "m", "uid": "mig-1", **recorded, "phase": "Succeeded"}
    assert validate(a_write("n2" if moves else "n", old, new, found)) == []


@pytest.mark.parametrize("generation", [1, 4, 2**62])
def test_no_generation_is_claimed_but_the_present_one(generation: int) -> None:
    old = stored("Running")
    assert paths(a_write("n", old, written(old, "Running", observedGeneration=generation))) == {"status.observedGeneration"}


@pytest.mark.parametrize(
    "stamps",
    [
        [],
        [{"phase": "Stopping", "time": MOMENT}],
        [{"phase": "Running", "time": MOMENT}, {"phase": "Running", "time": MOMENT}],
        [{"phase": "Running", "time": MOMENT}, {"phase": "Scheduled", "time": MOMENT}, {"phase": "Stopping", "time": MOMENT}],
    ],
)
def test_the_history_of_phases_only_grows_by_the_new_one(stamps: list[dict[str, str]]) -> None:
    old = stored("Running")
    new = written(old, "Stopping", phaseTransitionTimestamps=stamps)
    assert paths(a_write("n", old, new)) == {"status.phaseTransitionTimestamps"}


def test_a_full_history_forgets_its_oldest_entry() -> None:
    old = stored("Running", attempt=1)
    old["status"]["phaseTransitionTimestamps"] *= phases.MAX_TIMESTAMPS
    assert paths(a_write("n", old, written(old, "Stopping"))) == set()


def taken_over(old: dict[str, Any], migration: dict[str, Any], **changes: Any) -> dict[str, Any]:
    moved = migration["status"]
    record = {key: moved[key] for key in ("sourceNode", "sourcePod", "targetNode", "targetPod", "startTime") if key in moved}
    here = {"nodeName": moved["targetNode"], "podName": moved["targetPod"], "podUID": moved["targetPodUID"]}
    more = {"migration": {"name": "m", "uid": "mig-1", **record, "endTime": MOMENT, "phase": "Succeeded"}, **changes}
    return written(old, "Running", **here, domain={"state": "running"}, **more)


@pytest.mark.parametrize("before", sorted(phases.HANDLED))
def test_target_of_a_running_migration_takes_the_machine_over(before: str) -> None:
    old, migration = stored(before), a_migration("Running", startTime=MOMENT)
    assert validate(a_write("n2", old, taken_over(old, migration), migration)) == []


@pytest.mark.parametrize("phase", sorted({"", *phases.MIGRATION_PHASES} - {"Running"}))
def test_before_and_after_the_migration_runs_the_machine_stays(phase: str) -> None:
    old = stored("Running")
    new = taken_over(old, a_migration("Running"))
    assert paths(a_write("n2", old, new, a_migration(phase))) == {"status.migration.phase"}


def test_target_of_a_failed_attempt_takes_no_machine_over() -> None:
    failed = [{"number": 1, "reason": "ConnectionBroken", "message": "broke"}]
    old, migration = stored("Running"), a_migration("Running", attempt=1, attempts=failed)
    assert paths(a_write("n2", old, taken_over(old, migration), migration)) == {"status.migration"}
    again = a_migration("Running", attempt=2, attempts=failed)
    assert validate(a_write("n2", old, taken_over(old, again), again)) == []


def test_without_a_migration_of_the_machine_it_stays() -> None:
    old, migration = stored("Running"), a_migration("Running")
    new = taken_over(old, migration)
    of_another = {**migration, "spec": {"selector": {"name": "other"}}}
    remade = {**migration, "metadata": {**migration["metadata"], "uid": "mig-2"}}
    for found in (None, of_another, remade):
        assert paths(a_write("n2", old, new, found)) == {"status.nodeName"}


@pytest.mark.parametrize(
    ("node", "side"), [("n", {"targetNode": "n3"}), ("n2", {"targetNode": "n3"}), ("n2", {"sourceNode": "n3"}), ("n2", {"sourcePod": "p3"})]
)
def test_only_source_and_target_are_party_to_a_migration(node: str, side: dict[str, Any]) -> None:
    old = stored("Running")
    migration = a_migration("Running", **side)
    new = taken_over(old, a_migration("Running"))
    assert paths(a_write(node, old, new, migration))


@pytest.mark.parametrize("side", [{"sourceNode": "n3"}, {"sourcePod": "p3"}])
def test_migration_of_another_machine_moves_nothing(side: dict[str, Any]) -> None:
    old, migration = stored("Running"), a_migration("Running", **side)
    assert paths(a_write("n2", old, taken_over(old, migration), migration)) == {"status.migration"}


@pytest.mark.parametrize("field", ["nodeName", "podName", "podUID"])
def test_the_target_takes_the_machine_into_its_pod_and_no_other(field: str) -> None:
    old, migration = stored("Running"), a_migration("Running")
    value = "n2" if field == "nodeName" else "other"
    new = taken_over(old, {**migration, "status": {**migration["status"], "targetPodUID": "x"}} if field == "podUID" else migration)
    new["status"][field] = value
    found = paths(a_write("n2", old, new, migration))
    assert found == (set() if field == "nodeName" else {f"status.{field}"})


@pytest.mark.parametrize("field", sorted(each.alias or name for name, each in types.MigrationState.model_fields.items()))
def test_recorded_migration_state_must_match_the_migration(field: str) -> None:
    old, migration = stored("Running"), a_migration("Running", startTime=MOMENT)
    new = taken_over(old, migration)
    new["status"]["migration"][field] = "forged"
    found = paths(a_write("n2", old, new, migration))
    assert found == {"endTime": set(), "uid": {"status.nodeName"}}.get(field, {f"status.migration.{field}"})


@pytest.mark.parametrize("field", ["request", "pause", "operations", "attempt", "attempts", "phaseTransitionTimestamps"])
def test_the_target_forges_nothing_else_on_the_way(field: str) -> None:
    old, migration = stored("Running"), a_migration("Running")
    assert paths(a_write("n2", old, taken_over(old, migration, **{field: SAMPLES[field]}), migration)) == {f"status.{field}"}


@pytest.mark.parametrize("phase", ["Stopped", "Succeeded", "Failed", "Unknown", "Pending"])
def test_the_target_does_not_end_what_it_takes_over(phase: str) -> None:
    old, migration = stored("Running"), a_migration("Running")
    new = taken_over(old, migration)
    new["status"]["phase"] = phase
    assert paths(a_write("n2", old, new, migration)) == {"status.phase"}


def test_source_writes_nothing_after_the_target_took_over() -> None:
    old = stored("Running")
    moved = taken_over(old, a_migration("Running"))
    assert paths(a_write("n", moved, written(moved, "Running", domain={"state": "paused"}))) == {"status.nodeName"}
    back = copy.deepcopy(moved)
    back["status"] |= {"nodeName": "n", "podName": "p", "podUID": "pod-1"}
    assert paths(a_write("n", moved, back, a_migration("Succeeded")))
