from __future__ import annotations

import copy
import typing
from collections.abc import Callable
from typing import Any

import pytest

from apiserver.apis.meta import decoding
from apiserver.apis.virt.lifecycle import phases, power, progress
from apiserver.apis.virt.v1alpha1 import status_validation, types
from launcher.protocol import messages

Json = dict[str, Any]
MOMENT = "2026-11-22T00:00:00Z"
UID = "0b8f7f0e-5d0c-4a8e-9f61-0b6ad2c9a001"
MACHINE: Json = {
    "observedGeneration": 3,
    "phase": "Running",
    "conditions": [{"type": "Ready", "status": "True", "reason": "GuestRunning", "message": "it runs", "lastTransitionTime": MOMENT}],
    "attempt": 2,
    "attempts": [
        {"number": 1, "generation": 1, "podName": "p1", "nodeName": "node1", "startTime": MOMENT, "runningTime": MOMENT,
         "stopTime": MOMENT, "endTime": MOMENT,
         "result": "Failed", "message": "it failed | twice"},
        {"number": 2, "podName": "p2", "nodeName": "node2", "startTime": MOMENT},
    ],
    "nodeName": "node2", "podName": "p2", "podUID": UID, "podIP": "10.9.8.7",
    "cpu": {"model": "EPYC-Rome", "features": ["ibpb", "amd-ssbd"], "message": "why"},
    "domain": {"state": "running", "reason": "booted", "type": "kvm", "cpuModel": "EPYC-Rome", "liveChanges": ["disk.ioTune"]},
    "interfaces": [{"name": "default", "mac": "02:00:00:00:00:09", "ipAddress": "10.9.8.7", "ipAddresses": ["10.9.8.7", "2001:db8::1"]}],
    "guest": {
        "agent": {"connected": True, "version": "7.2.22"},
        "os": {"id": "debian", "name": "Debian", "version": "12", "kernelRelease": "6.1"},
        "hostname": "h",
        "timezone": "UTC",
        "interfaces": [{"name": "default", "device": "eth0", "ipAddresses": ["10.0.2.2"]}],
        "time": MOMENT,
    },
    "fsFreezeStatus": "frozen",
    "graphics": [{"type": "vnc"}],
    "vsock": {"cid": 2**32 - 2},
    "devices": [{"kind": "disk", "name": "root", "target": "vda", "address": "pci 0000:04:00.0"}],
    "changes": [{"path": "spec.domain.devices.disks[root].ioTune", "state": "Failed", "message": "no", "time": "2026-11-22T00:00:00Z"}],
    "running": {"generation": 1},
    "volumeStatus": [
        {
            "name": "data",
            "claimName": "data",
            "phase": "AttachedToNode",
            "reason": "DiskInUse",
            "message": "why",
            "hotplugVolume": {"attachPodName": "virt-launcher-vm-volume-aaaaa", "attachPodUID": "6b0a1c1e-0000-4000-8000-000000000009"},
        }
    ],
    "podResize": {"guestMemoryBytes": 1, "reason": "Deferred", "message": "why"},
    "imports": [{"disk": "root", "phase": "Retrying", "transferredBytes": 1, "totalBytes": 2, "failures": 3, "message": "why"}],
    "managedSave": {"id": UID, "claimName": "c", "file": f"{UID}/{UID}", "digest": "sha256:" + 64 * "0", "sizeBytes": 1, "attempt": 1,
                    "type": "kvm", "machineType": "pc-q35-10.0", "nodeName": "node1", "time": MOMENT},
    "migration": {"name": "m", "uid": UID, "sourceNode": "node1", "sourcePod": "p1", "targetNode": "node2", "targetPod": "p2",
                  "startTime": MOMENT, "endTime": MOMENT, "phase": "Succeeded"},
    "request": {"action": "Start", "time": MOMENT, "runStrategy": "Always", "generation": 3, "attempt": 2,
                "gracePeriodSeconds": 0},
    "calls": [{"id": "my-stop", "verb": "stop"}],
    "pause": {"wanted": True, "attempt": 2, "generation": 3, "time": MOMENT},
    "operations": [
        {"id": UID, "number": 1, "action": "SendKey",
         "parameters": {"keys": ["KEY_A", "767"], "holdMilliseconds": 1, "unfreezeTimeoutSeconds": 3600}, "attempt": 2, "time": MOMENT,
         "percent": 100, "result": "Failed", "message": "why", "completionTime": MOMENT},
        {"id": "my-reset", "number": 4, "action": "Resume", "attempt": 2, "time": MOMENT},
    ],
    "runStrategyGeneration": 2,
    "phaseTransitionTimestamps": [{"phase": "Running", "time": "2026-11-22T00:00:00.123456Z"}],
}  # fmt: skip
MIGRATION: Json = {
    "phase": "Running",
    "conditions": [{"type": "Released", "status": "True", "reason": "SourceSucceeded", "message": "", "observedGeneration": 1}],
    "observedGeneration": 1, "sourceNode": "node1", "sourcePod": "p1", "sourcePodUID": UID,
    "targetNode": "node2", "targetPod": "p2", "targetPodUID": UID,
    "targetPodIPs": ["10.244.1.7", "2001:db8::7"],
    "targetAddress": "10.9.8.7:8445", "startTime": MOMENT, "endTime": MOMENT, "message": "it goes",
    "attempt": 2,
    "attempts": [{"number": 1, "targetNode": "node2", "targetPod": "p2", "reason": "ConnectionBroken", "message": "broke",
                  "endTime": MOMENT}],
    "policy": "databases",
    "options": {"bandwidth": "200Mi", "maxDowntimeMilliseconds": 300, "parallelConnections": 2, "allowAutoConverge": True,
                "allowPause": True, "completionTimeoutSeconds": 300},
    "progress": {**dict.fromkeys(progress.NUMBERS, 2**63 - 1), "lastUpdateTime": MOMENT},
    "phaseTransitionTimestamps": [{"phase": "Running", "time": MOMENT}],
}  # fmt: skip

HOSTILE_NAMES = ["../../x", "Node1", "a_b", "a/b", "-a", "a b", "a\n", "a" * 254, "\u202ea", "\x1b[2J"]
HOSTILE_UIDS = ["../../x", "..", "a/b", "-a", "a.b", "a b", "a" * 64, "ä", "\x00"]
HOSTILE_ADDRESSES = [
    "localhost",
    "10.9.8",
    "10.9.8.7/24",
    "10.9.8.07",
    "fe80::1%eth0",
    "::ffff:1.2.3.4.5",
    "9" * 100,
    "10.9.8.7:80",
    "१.१.१.१",
]
NO_PODS = ["169.254.169.254", "fd00:ec2::254", "fe80::1", "127.0.0.1", "::1", "0.0.0.0", "::", "224.0.0.1", "ff02::1", "::ffff:10.0.0.1"]
HOSTILE_SERVERS = [
    *(f"[{each}]:8445" if ":" in each else f"{each}:8445" for each in NO_PODS),
    "10.9.8.7",
    "host:80",
    "10.9.8.7:0",
    "10.9.8.7:65536",
    "fd00::1:80",
    "[fd00::1]",
    "[10.9.8.7]:80",
    "10.9.8.7:8o",
    ":80",
    "x" * 99,
]
HOSTILE_MACS = ["02:00:00:00:00", "02-00-00-00-00-09", "02:00:00:00:00:0g", "02:00:00:00:00:09:0a"]
HOSTILE_WORDS = ["\x1b[31m", "a\x00b", "x" * 9000, "ä" * 4100, "a\u202eb"]
HOSTILE_LINES = ["\x1b[2J", "x" * 300, "a\nb"]
HOSTILE_REASONS = [" ", "two words", "1st", "a-b", "x" * 257, "R\n"]
HOSTILE_MODELS = ["EPYC ", "a/b", "-a", "a\n", "x" * 64, "\x1b[2J", "Ä"]
HOSTILE_TIMES = [f"2026-11-22T00:00:00.{'0' * 64}Z"]
MACHINE_CASES: dict[tuple[Any, ...], list[Any]] = {
    ("observedGeneration",): [-1],
    ("attempt",): [-1],
    ("nodeName",): HOSTILE_NAMES,
    ("podName",): HOSTILE_NAMES,
    ("podUID",): HOSTILE_UIDS,
    ("podIP",): [*HOSTILE_ADDRESSES, *NO_PODS],
    ("conditions", 0, "type"): ["two words", "a/b/c", "/", "x" * 400],
    ("conditions", 0, "reason"): HOSTILE_REASONS,
    ("conditions", 0, "message"): HOSTILE_WORDS,
    ("conditions", 0, "lastTransitionTime"): HOSTILE_TIMES,
    ("conditions", 0, "observedGeneration"): [-1],
    ("attempts", 0, "number"): [0, -1],
    ("running", "generation"): [-1],
    ("devices", 0, "name"): ["a.b", "A", "x" * 64],
    ("devices", 0, "target"): ["../x", "a/b", "x" * 65, " a", "a\n"],
    ("devices", 0, "address"): ["../x", "a/b", "x" * 65, " a", "a\n"],
    ("changes", 0, "path"): ["status", "spec. x", "spec.\x1b[2J", "spec." + "x" * 260, "spec.a\n"],
    ("changes", 0, "state"): ["Done", "applied"],
    ("changes", 0, "message"): HOSTILE_WORDS,
    ("changes", 0, "time"): HOSTILE_TIMES,
    ("domain", "liveChanges", 0): HOSTILE_MODELS,
    ("vsock", "cid"): [2, -1, 2**32 - 1],
    ("volumeStatus", 0, "name"): ["a.b", "A", "x" * 64],
    ("volumeStatus", 0, "claimName"): HOSTILE_NAMES,
    ("volumeStatus", 0, "reason"): HOSTILE_REASONS,
    ("volumeStatus", 0, "message"): HOSTILE_WORDS,
    ("volumeStatus", 0, "hotplugVolume", "attachPodName"): HOSTILE_NAMES,
    ("volumeStatus", 0, "hotplugVolume", "attachPodUID"): HOSTILE_UIDS,
    ("podResize", "guestMemoryBytes"): [-1],
    ("podResize", "reason"): HOSTILE_REASONS,
    ("podResize", "message"): HOSTILE_WORDS,
    ("imports", 0, "disk"): ["a.b", "A", "x" * 64],
    ("imports", 0, "transferredBytes"): [-1],
    ("imports", 0, "totalBytes"): [-1],
    ("imports", 0, "failures"): [-1],
    ("imports", 0, "message"): HOSTILE_WORDS,
    ("attempts", 0, "generation"): [-1],
    ("attempts", 0, "stopTime"): HOSTILE_TIMES,
    ("attempts", 1, "podName"): HOSTILE_NAMES,
    ("attempts", 1, "nodeName"): HOSTILE_NAMES,
    ("attempts", 1, "startNodeName"): HOSTILE_NAMES,
    ("attempts", 0, "message"): HOSTILE_WORDS,
    ("attempts", 0, "startTime"): HOSTILE_TIMES,
    ("attempts", 0, "runningTime"): HOSTILE_TIMES,
    ("attempts", 0, "endTime"): HOSTILE_TIMES,
    ("domain", "state"): ["Running", "on fire", "x" * 999],
    ("domain", "reason"): HOSTILE_LINES,
    ("domain", "type"): ["xen", "KVM"],
    ("domain", "cpuModel"): HOSTILE_MODELS,
    ("cpu", "model"): HOSTILE_MODELS,
    ("cpu", "features", 1): HOSTILE_MODELS,
    ("cpu", "message"): HOSTILE_WORDS,
    ("interfaces", 0, "name"): ["a.b", "A", "x" * 64],
    ("interfaces", 0, "mac"): HOSTILE_MACS,
    ("interfaces", 0, "ipAddress"): HOSTILE_ADDRESSES,
    ("interfaces", 0, "ipAddresses", 1): HOSTILE_ADDRESSES,
    ("guest", "agent", "version"): HOSTILE_LINES,
    ("guest", "os", "id"): HOSTILE_LINES,
    ("guest", "os", "name"): HOSTILE_LINES,
    ("guest", "os", "version"): HOSTILE_LINES,
    ("guest", "os", "kernelRelease"): HOSTILE_LINES,
    ("guest", "hostname"): HOSTILE_LINES,
    ("guest", "timezone"): HOSTILE_LINES,
    ("guest", "interfaces", 0, "name"): ["a.b", "A", "x" * 64],
    ("guest", "interfaces", 0, "device"): HOSTILE_LINES,
    ("guest", "interfaces", 0, "ipAddresses", 0): HOSTILE_ADDRESSES,
    ("guest", "time"): HOSTILE_TIMES,
    ("managedSave", "id"): HOSTILE_UIDS,
    ("managedSave", "claimName"): HOSTILE_NAMES,
    ("managedSave", "nodeName"): HOSTILE_NAMES,
    ("managedSave", "file"): ["../x", "u/../x", "u", "u/x/y", "/u/x", f"{'u' * 100}/{'x' * 100}", "u/x\n"],
    ("managedSave", "digest"): ["0" * 64, "sha256:" + 63 * "0", "sha256:" + 64 * "F"],
    ("managedSave", "sizeBytes"): [-1],
    ("managedSave", "machineType"): HOSTILE_MODELS,
    ("managedSave", "attempt"): [-1],
    ("managedSave", "time"): HOSTILE_TIMES,
    ("migration", "name"): HOSTILE_NAMES,
    ("migration", "uid"): HOSTILE_UIDS,
    ("migration", "sourceNode"): HOSTILE_NAMES,
    ("migration", "sourcePod"): HOSTILE_NAMES,
    ("migration", "targetNode"): HOSTILE_NAMES,
    ("migration", "targetPod"): HOSTILE_NAMES,
    ("migration", "startTime"): HOSTILE_TIMES,
    ("migration", "endTime"): HOSTILE_TIMES,
    ("migration", "phase"): ["Done", "running"],
    ("request", "time"): HOSTILE_TIMES,
    ("request", "attempt"): [-1],
    ("request", "generation"): [-1],
    ("request", "gracePeriodSeconds"): [-1],
    ("request", "nodeSelector"): [{"disk": "x y"}, {"x y": "ssd"}],
    ("calls", 0, "id"): HOSTILE_UIDS,
    ("calls", 0, "verb"): ["A", "x" * 64],
    ("operations", 0, "parameters", "keys", 0): ["A", "KEY_", "0", "768"],
    ("operations", 0, "parameters", "holdMilliseconds"): [0, -1, 10_001],
    ("operations", 0, "parameters", "unfreezeTimeoutSeconds"): [0, -1, 3601],
    ("pause", "time"): HOSTILE_TIMES,
    ("pause", "attempt"): [-1],
    ("pause", "generation"): [-1],
    ("operations", 0, "id"): HOSTILE_UIDS,
    ("operations", 0, "number"): [0, -1, 2**31 - 1],
    ("operations", 0, "attempt"): [-1],
    ("operations", 0, "percent"): [-1, 101],
    ("operations", 0, "time"): HOSTILE_TIMES,
    ("operations", 0, "message"): HOSTILE_WORDS,
    ("operations", 0, "completionTime"): HOSTILE_TIMES,
    ("runStrategyGeneration",): [-1],
    ("phaseTransitionTimestamps", 0, "phase"): ["Done", "x" * 999],
    ("phaseTransitionTimestamps", 0, "time"): HOSTILE_TIMES,
}
MIGRATION_CASES: dict[tuple[Any, ...], list[Any]] = {
    ("sourceNode",): HOSTILE_NAMES,
    ("sourcePod",): HOSTILE_NAMES,
    ("sourcePodUID",): HOSTILE_UIDS,
    ("targetNode",): HOSTILE_NAMES,
    ("targetPod",): HOSTILE_NAMES,
    ("targetPodUID",): HOSTILE_UIDS,
    ("targetPodIPs", 1): [*HOSTILE_ADDRESSES, *NO_PODS],
    ("targetAddress",): HOSTILE_SERVERS,
    ("attempt",): [-1, 0, 4],
    ("attempts", 0, "number"): [-1, 0, 4],
    ("attempts", 0, "targetNode"): HOSTILE_NAMES,
    ("attempts", 0, "targetPod"): HOSTILE_NAMES,
    ("attempts", 0, "reason"): ["Bored", "connectionbroken"],
    ("attempts", 0, "message"): HOSTILE_WORDS,
    ("attempts", 0, "endTime"): HOSTILE_TIMES,
    ("message",): HOSTILE_WORDS,
    ("startTime",): HOSTILE_TIMES,
    ("endTime",): HOSTILE_TIMES,
    ("observedGeneration",): [-1],
    ("policy",): HOSTILE_NAMES,
    ("options", "bandwidth"): ["-1", "1Ki"],
    ("options", "maxDowntimeMilliseconds"): [-1, 2**31],
    ("options", "parallelConnections"): [-1, 10_000],
    ("options", "completionTimeoutSeconds"): [-1],
    **{("progress", each): [-1, -(2**63)] for each in progress.NUMBERS},
    ("progress", "lastUpdateTime"): HOSTILE_TIMES,
    ("conditions", 0, "message"): HOSTILE_WORDS,
    ("conditions", 0, "reason"): HOSTILE_REASONS,
    ("phaseTransitionTimestamps", 0, "phase"): ["Scheduled"],
    ("phaseTransitionTimestamps", 0, "time"): HOSTILE_TIMES,
}
ENUMERATED = {
    "allowAutoConverge",
    "allowPause",
    "connected",
    "fsFreezeStatus",
    "kind",
    "phase",
    "status",
    "result",
    "action",
    "runStrategy",
    "type",
    "wanted",
}
"""Fields with an enum in the schema, or true and false."""


def errors(kind: str, new: Json, old: Json | None = None) -> list[tuple[str, str]]:
    judge: Callable[[Any, Any], Any] = getattr(status_validation, f"validate_{kind}_status")
    return [(each.path, str(each)) for each in judge({"status": new}, {"status": old or {}})]


def changed(status: Json, path: tuple[Any, ...], value: Any) -> Json:
    found = copy.deepcopy(status)
    place: Any = found
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return found


def text(path: tuple[Any, ...]) -> str:
    return "status" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)


CASES = [("virtual_machine", MACHINE, *case) for case in MACHINE_CASES.items()] + [
    ("migration", MIGRATION, *case) for case in MIGRATION_CASES.items()
]


def leaves(value: Any, path: tuple[Any, ...] = ()) -> set[tuple[Any, ...]]:
    if isinstance(value, dict):
        return set().union(*(leaves(each, (*path, key)) for key, each in value.items()))
    if isinstance(value, list):
        return set().union(*(leaves(each, (*path, 0)) for each in value))
    return {path}


@pytest.mark.parametrize(
    ("kind", "status", "model"),
    [("virtual_machine", MACHINE, types.VirtualMachineStatus), ("migration", MIGRATION, types.MigrationStatus)],
)
def test_every_field_of_the_schema_has_a_hostile_value(kind: str, status: Json, model: Any) -> None:
    assert set(status) == {each.alias or name for name, each in model.model_fields.items()}
    cases = MACHINE_CASES if kind == "virtual_machine" else MIGRATION_CASES
    tried = {tuple(0 if isinstance(step, int) else step for step in path) for path in cases}
    shared = {path for path in leaves(status) if path[0] == "conditions"} if kind == "migration" else set()
    assert {path for path in leaves(status) if path[-1] not in ENUMERATED} - shared <= tried


@pytest.mark.parametrize(("kind", "status"), [("virtual_machine", MACHINE), ("migration", MIGRATION)])
def test_valid_status_has_no_errors(kind: str, status: Json) -> None:
    assert errors(kind, status) == []
    assert errors(kind, {}) == []


@pytest.mark.parametrize(("kind", "status", "path", "values"), CASES, ids=[f"{each[0]}-{text(each[2])}" for each in CASES])
def test_hostile_status_value_is_named_bounded_and_kept_if_old(kind: str, status: Json, path: tuple[Any, ...], values: list[Any]) -> None:
    for value in values:
        hostile = changed(status, path, value)
        found = errors(kind, hostile)
        assert text(path) in [each for each, _ in found], value
        assert found == errors(kind, hostile, status)
        assert sum(len(each) for _, each in found) < 4096
        assert errors(kind, hostile, hostile) == []
        assert errors(kind, {**hostile, "phase": "Failed"}, hostile) == []


@pytest.mark.parametrize(
    ("field", "element", "limit"),
    [
        ("attempts", {"number": 1}, 10),
        ("conditions", {"type": "A", "status": "True"}, 16),
        ("phaseTransitionTimestamps", {"phase": "Running", "time": MOMENT}, 20),
        ("interfaces", {"name": "a"}, 8),
        ("graphics", {"type": "vnc"}, 2),
        ("imports", {"disk": "a"}, 26),
    ],
)
def test_lists_are_bounded_and_too_long_ones_may_only_shrink(field: str, element: Json, limit: int) -> None:
    def listed(number: int) -> Json:
        numbered = [{**element, **({"number": each + 1} if field == "attempts" else {})} for each in range(number)]
        return {field: [{**each, "type": f"A{at}"} if field == "conditions" else each for at, each in enumerate(numbered)]}

    assert errors("virtual_machine", listed(limit)) == []
    assert [path for path, _ in errors("virtual_machine", listed(limit + 1))] == [f"status.{field}"]
    assert errors("virtual_machine", listed(limit + 1), listed(limit + 2)) == []
    assert [path for path, _ in errors("virtual_machine", listed(limit + 3), listed(limit + 2))] == [f"status.{field}"]


def test_addresses_of_an_interface_are_bounded() -> None:
    many = changed(MACHINE, ("interfaces", 0, "ipAddresses"), ["10.0.0.1"] * 33)
    assert [path for path, _ in errors("virtual_machine", many, MACHINE)] == ["status.interfaces[0].ipAddresses"]


@pytest.mark.parametrize(
    ("numbers", "path"),
    [((1, 1), "status.attempts[1].number"), ((2, 1), "status.attempts[1].number"), ((1, 3, 2), "status.attempts[2].number")],
)
def test_the_newest_attempt_is_last(numbers: tuple[int, ...], path: str) -> None:
    attempts = [{"number": each} for each in numbers]
    assert [each for each, _ in errors("virtual_machine", {"attempts": attempts})] == [path]
    assert errors("virtual_machine", {"attempts": [{**each, "message": "x"} for each in attempts]}, {"attempts": attempts}) == []


def test_an_empty_text_says_nothing() -> None:
    assert (
        errors(
            "virtual_machine", {"nodeName": "", "podIP": "", "podUID": "", "conditions": [{"type": "A", "status": "True", "reason": ""}]}
        )
        == []
    )


def test_a_final_phase_is_final() -> None:
    for final in phases.MIGRATION_FINAL:
        assert [path for path, _ in errors("migration", {"phase": "Running"}, {"phase": final})] == ["status.phase"]


def test_many_elements_are_judged_one_by_one() -> None:
    stamps = [{"phase": "Done", "time": MOMENT, "n": each} for each in range(20_000)]
    conditions = [{"type": f"two words {each}", "status": "True"} for each in range(20_000)]
    old = {"phaseTransitionTimestamps": stamps, "conditions": conditions}
    assert errors("virtual_machine", {**old, "phase": "Failed"}, old) == []
    assert errors("virtual_machine", {"phaseTransitionTimestamps": stamps[::-1], "conditions": conditions[::-1]}, old) == []


def test_words_are_those_of_the_parts_that_write_them() -> None:
    from apiserver.apis.virt.rights.node_rights import machines

    assert set(typing.get_args(messages.Accelerator)) == set(status_validation.DOMAIN_TYPES)
    assert set(power.PHASES) == set(machines.RESULTS.values()) == set(power.RESULTS)
    assert set(power.PHASES.values()) == set(machines.RESULTS) == phases.ENDED


def test_the_schema_takes_what_is_in_order() -> None:
    for model, status in ((types.VirtualMachine, MACHINE), (types.Migration, MIGRATION)):
        spec = {"domain": {}} if model is types.VirtualMachine else {"selector": {"name": "a"}}
        assert decoding.read(model, {"spec": spec, "status": copy.deepcopy(status)}) == ((), ())
