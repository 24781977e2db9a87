"""Objects with every field of ours, and copies with one hostile value.

The models' JSON schemas define the fields.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from apiserver.apis.meta.schema import Kind
from apiserver.apis.virt.lifecycle import progress
from apiserver.apis.virt.v1alpha1 import types
from tests.fields import families, schema

Object = dict[str, Any]
Step = str | int

VALUES: Final[dict[str, Any]] = {
    "null": None,
    "true": True,
    "a number": 7,
    "a huge number": 10**40,
    "a fraction": 0.5,
    "not a number": float("nan"),
    "NaN as text": "NaN",
    "empty text": "",
    "a path upwards": "../../x",
    "slashes": "a/b/c",
    "a zero byte": "\x00",
    "control characters": "\x1b]0;x\x07\r\nX: y",
    "half a surrogate pair": "\ud800",
    "very long text": "x" * 70_000,
    "an edge of time": "0001-01-01T00:00:00+14:00",
    "a list": ["../../x"],
    "an empty list": [],
    "nested lists": [[[[]]]],
    "an object": {"name": "../../x"},
    "an empty object": {},
}
NUMBERS: Final[dict[str, int]] = {"the largest of 32 bits": 2**31 - 1, "the smallest of 32 bits": -(2**31)}
"""The right type, but beyond what virt-api accepts."""
MISSING: Final = "nothing"
WORST: Final = frozenset(
    {
        MISSING,
        "null",
        "a huge number",
        "not a number",
        "a path upwards",
        "a zero byte",
        "half a surrogate pair",
        "very long text",
        "a list",
        "an object",
        *NUMBERS,
    }
)
"""One of each sort, for tests that spend milliseconds per case."""

PARTS: Final = ("spec.domain.devices.disks", "spec.domain.devices", "spec.domain", "spec", "status")
"""Parts of a VM, by the first matching prefix, with one test each; ``spec`` includes the metadata."""

T: Final = "2026-11-21T07:59:00Z"
CONDITION: Final[Object] = {
    "type": "Ready",
    "status": "False",
    "reason": "GuestNotStarted",
    "message": "m",
    "lastTransitionTime": T,
    "observedGeneration": 1,
}
STAMP: Final[Object] = {"phase": "Scheduled", "time": T}
SPEC: Final[Object] = families.example(schema.fields(schema.definitions(types.VirtualMachine)))
STATUS: Final[Object] = {
    "observedGeneration": 1,
    "phase": "Scheduled",
    "conditions": [CONDITION],
    "attempt": 1,
    "attempts": [
        {
            "number": 1,
            "generation": 1,
            "podName": "p",
            "nodeName": "n",
            "startNodeName": "n",
            "startTime": T,
            "runningTime": T,
            "stopTime": T,
            "endTime": T,
            "result": "Failed",
            "message": "m",
        },
        {"number": 2, "generation": 1, "podName": "p", "nodeName": "n", "startTime": T},
    ],
    "nodeName": "n",
    "podName": "p",
    "podUID": "pod-hostile",
    "podIP": "10.0.0.1",
    "cpu": {"model": "EPYC", "features": ["ibpb"], "message": "m"},
    "domain": {"state": "running", "reason": "booted", "type": "qemu", "cpuModel": "EPYC", "liveChanges": ["disk.ioTune"]},
    "interfaces": [{"name": "default", "mac": "02:00:00:00:00:77", "ipAddress": "10.0.0.1", "ipAddresses": ["10.0.0.1"]}],
    "guest": {
        "agent": {"connected": True, "version": "7.2.22"},
        "os": {"id": "debian", "name": "Debian", "version": "12", "kernelRelease": "6.1"},
        "hostname": "h",
        "timezone": "UTC",
        "interfaces": [{"name": "default", "device": "eth0", "ipAddresses": ["10.0.2.2"]}],
        "time": T,
    },
    "graphics": [{"type": "vnc"}],
    "vsock": {"cid": 3},
    "fsFreezeStatus": "frozen",
    "devices": [{"kind": "disk", "name": "root", "target": "vda", "address": "pci 0000:04:00.0", "empty": True}],
    "changes": [
        {"path": "spec.domain.devices.disks[root].ioTune", "state": "Failed", "message": "libvirt says no", "time": "2026-11-22T00:00:00Z"}
    ],
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
    "imports": [{"disk": "d", "phase": "Downloading", "transferredBytes": 1, "totalBytes": 2, "failures": 1, "message": "m"}],
    "migration": {
        **dict.fromkeys(("name", "uid", "sourceNode", "sourcePod", "targetNode", "targetPod", "phase"), "x"),
        "startTime": T,
        "endTime": T,
    },
    "managedSave": {
        "id": "op",
        "claimName": "c",
        "file": "u/op",
        "digest": f"sha256:{64 * '0'}",
        "sizeBytes": 1,
        "attempt": 1,
        "type": "kvm",
        "machineType": "q35",
        "nodeName": "n",
        "time": T,
    },
    "request": {
        "action": "Start",
        "time": T,
        "runStrategy": "Always",
        "generation": 1,
        "attempt": 2,
        "gracePeriodSeconds": 1,
        "nodeSelector": {"a": "b"},
    },
    "calls": [{"id": "c", "verb": "stop"}],
    "pause": {"wanted": False, "attempt": 2, "generation": 1, "time": T},
    "operations": [
        {
            "id": "op",
            "number": 1,
            "action": "SendKey",
            "parameters": {"keys": ["KEY_A"], "holdMilliseconds": 1, "unfreezeTimeoutSeconds": 1, "nodeDisk": True},
            "attempt": 2,
            "time": T,
            "percent": 5,
            "result": "Failed",
            "message": "m",
            "completionTime": T,
        }
    ],
    "runStrategyGeneration": 1,
    "phaseTransitionTimestamps": [STAMP],
}


def a_full_virtual_machine() -> Object:
    metadata = {"name": "hostile", "namespace": "ns", "generation": 1, "labels": {"a": "b"}, "annotations": {"c": "d"}}
    return copy.deepcopy(
        {"apiVersion": "kubevirt.io/v1alpha1", "kind": "VirtualMachine", "metadata": metadata, "spec": SPEC, "status": STATUS}
    )


def a_full_migration(phase: str = "TargetReady") -> Object:
    return copy.deepcopy(
        {
            "apiVersion": "kubevirt.io/v1alpha1",
            "kind": "Migration",
            "metadata": {"name": "move", "namespace": "ns", "generation": 1, "finalizers": ["kubevirt.io/migration"]},
            "spec": {"selector": {"name": "hostile"}, "nodeSelector": {"a": "b"}, "priority": 1},
            "status": {
                "phase": phase,
                "conditions": [{**CONDITION, "type": "Released"}],
                "observedGeneration": 1,
                "sourceNode": "n",
                "sourcePod": "p",
                "sourcePodUID": "u",
                "targetNode": "n",
                "targetPod": "q",
                "targetPodUID": "pod-target",
                "targetPodIPs": ["10.244.0.9"],
                "targetAddress": "127.0.0.1:1",
                "attempt": 2,
                "attempts": [
                    {"number": 1, "targetNode": "n", "targetPod": "o", "reason": "ConnectionBroken", "message": "m", "endTime": T},
                ],
                "policy": "slow",
                "options": {
                    "bandwidth": "1Mi",
                    "maxDowntimeMilliseconds": 300,
                    "parallelConnections": 2,
                    "allowAutoConverge": True,
                    "allowPause": True,
                    "completionTimeoutSeconds": 150,
                },
                "startTime": T,
                "endTime": T,
                "message": "m",
                "progress": {**dict.fromkeys(progress.NUMBERS, 1), "lastUpdateTime": T},
                "phaseTransitionTimestamps": [STAMP],
            },
        }
    )


@dataclass(frozen=True)
class Case:
    kind: str
    path: str
    value: str
    root: Object
    steps: tuple[Step, ...]
    given: Any = None

    @property
    def object(self) -> Object:
        found: Object = replaced(self.root, self.steps, self.given, missing=self.value == MISSING)
        return found

    @property
    def name(self) -> str:
        return f"{self.kind} {self.path} is {self.value}"

    @property
    def part(self) -> str:
        if self.path.startswith("status"):
            return "status"
        return next((each for each in PARTS if self.path.startswith(each)), "spec")


def places(obj: Any, path: tuple[Step, ...] = ()) -> Iterator[tuple[Step, ...]]:
    children: list[tuple[Step, Any]] = list(obj.items()) if isinstance(obj, dict) else list(enumerate(obj)) if isinstance(obj, list) else []
    for step, child in children:
        yield (*path, step)
        yield from places(child, (*path, step))


def at(obj: Any, path: Sequence[Step]) -> Any:
    return at(obj[path[0]], path[1:]) if path else obj


def replaced(obj: Any, path: tuple[Step, ...], value: Any, *, missing: bool = False) -> Any:
    changed, step = obj.copy(), path[0]
    if len(path) > 1:
        changed[step] = replaced(obj[step], path[1:], value, missing=missing)
    elif missing:
        del changed[step]
    else:
        changed[step] = value
    return changed


def cases(obj: Object) -> Iterator[Case]:
    for path in places(obj):
        if path[0] in ("apiVersion", "kind") or path[:2] in (("metadata", "name"), ("metadata", "namespace")) or path == ("metadata",):
            continue  # the server sets the identity, which distinguishes cases
        text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")
        for name, value in VALUES.items():
            yield Case(obj["kind"], text, name, obj, path, value)
        yield Case(obj["kind"], text, MISSING, obj, path)
        for name, number in NUMBERS.items() if type(at(obj, path)) is int else ():
            yield Case(obj["kind"], text, name, obj, path, number)


def fields(schema: Object, definitions: Object, path: str = "") -> Iterator[str]:
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rsplit("/", 1)[-1]]
    for each in schema.get("anyOf", ()):
        yield from fields(each, definitions, path)
    if "items" in schema:
        yield from fields(schema["items"], definitions, path)
    for name, inner in schema.get("properties", {}).items():
        yield f"{path}.{name}".removeprefix(".")
        yield from fields(inner, definitions, f"{path}.{name}")


def all_fields(kind: type[Kind]) -> set[str]:
    schema = kind.model_json_schema()
    return set(fields(schema, schema["$defs"]))


class Told:
    """The names of objects that Events reported as invalid, from a fake API's writes."""

    def __init__(self, writes: Sequence[tuple[str, str, Any]]) -> None:
        self._writes = writes
        self._read = 0
        self._names: set[str] = set()

    def __contains__(self, name: object) -> bool:
        for method, _, obj in self._writes[self._read :]:
            if method == "POST" and obj.get("reason") == "InvalidObject":
                self._names.add(obj["involvedObject"]["name"])
        self._read = len(self._writes)
        return name in self._names


CASES: Final = (*cases(a_full_virtual_machine()), *cases(a_full_migration()))
MOST: Final = 200
"""Per test, because each has a timeout."""


def pieces(kind: str) -> Iterator[tuple[str, list[Case]]]:
    for part in PARTS:
        found = [case for case in CASES if case.kind == kind and case.value in WORST and case.part == part]
        count = -(-len(found) // MOST)
        for first in range(count):
            yield f"{part} {first + 1} of {count}", found[first::count]


PIECES: Final = dict(pieces("VirtualMachine"))
MIGRATION_PIECES: Final = dict(pieces("Migration"))
