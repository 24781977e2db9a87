from __future__ import annotations

import copy
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from apiserver.apis.meta.errors import StatusError
from apiserver.apis.meta.objects import HubObject, Object
from apiserver.registry.cacher import canonical
from apiserver.registry.generic import codec, metadata
from apiserver.registry.generic.options import WriteOptions
from apiserver.registry.generic.planning import Part, Planner
from apiserver.registry.generic.strategy import CreatingVerb, DeletingVerb, RelayedVerb, Strategy, UpdatingVerb
from apiserver.registry.virt.migrations import MigrationStrategy
from apiserver.registry.virt.virtualmachines import VirtualMachineStrategy

EXAMPLES = Path(__file__).parents[3] / "examples"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
DELETE = object()
JUNK: tuple[Any, ...] = (DELETE, None, -1, "", "x" * 300, [], {}, [None], [{}], {"a": None}, 1.5)
STATUS = {
    "phase": "Running",
    "conditions": [{"type": "Ready", "status": "True", "reason": "x", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    "attempt": 1,
    "attempts": [{"number": 1, "podName": "a", "nodeName": "n", "startTime": "2026-01-01T00:00:00Z"}],
    "nodeName": "n",
    "domain": {"state": "running"},
    "interfaces": [{"name": "a", "ipAddresses": ["192.0.2.1"]}],
    "migration": {"name": "m"},
    "request": {"action": "Start", "time": "2026-01-01T00:00:00.000000Z", "runStrategy": "Always", "attempt": 1},
}
PLACEMENT = {
    "nodeSelector": {"a": "b"},
    "tolerations": [{"key": "a", "operator": "Exists"}],
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "DoNotSchedule"}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]
            }
        }
    },
}


def example(name: str, **more: Any) -> Object:
    obj: Object = yaml.safe_load((EXAMPLES / name).read_text())
    obj["metadata"] |= {"name": "it", "namespace": "default", "labels": {"a": "b"}, "finalizers": ["a/b"]}
    obj["spec"] |= more
    return obj


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield (*path, key)
        yield from places(each, (*path, key))


def mutated(obj: Object, path: tuple[Any, ...], junk: Any) -> Object:
    result = copy.deepcopy(obj)
    parent: Any = result
    for key in path[:-1]:
        parent = parent[key]
    if junk is DELETE:
        del parent[path[-1]]
    else:
        parent[path[-1]] = copy.deepcopy(junk)
    return result


class Subject:
    def __init__(self, strategy: Strategy) -> None:
        self.strategy = strategy
        self.planner = Planner(strategy)

    def create(self, obj: Object) -> Object:
        metadata.match_request(obj, self.strategy.resource, "default")
        refused = self.planner.read(obj, WriteOptions(field_validation="Strict"))
        self.strategy.default(obj)
        new = self.planner.create(self.strategy.to_hub(obj), refused, NOW)
        self.show(new)
        return new

    def update(self, obj: Object, old: Object, *, status: bool) -> None:
        part: Part = "status" if status else ""
        refused = self.planner.receive(obj, old, WriteOptions(), part)
        new = self.planner.update(self.strategy.to_hub(obj), HubObject(old), part, refused).obj
        self.show(new)
        for verb in self.strategy.verbs.values():
            try:
                if isinstance(verb, CreatingVerb):
                    verb.make(codec.copy(new), {}, NOW)
                elif isinstance(verb, UpdatingVerb):
                    verb.target(codec.copy(new), {})
                elif isinstance(verb, RelayedVerb):
                    verb.check(codec.copy(new), {})
                elif isinstance(verb, DeletingVerb):
                    verb.choose(codec.copy(new), {}, [])
                else:
                    self.planner.act(HubObject(verb.apply(codec.copy(new), {}, NOW)), new)
            except StatusError:
                continue

    def show(self, obj: Object) -> None:
        self.strategy.locks(obj)
        self.strategy.cells(obj, NOW)
        self.strategy.selectable_fields(obj)


@pytest.mark.parametrize(
    ("strategy", "obj", "status"),
    [
        (VirtualMachineStrategy(), example("slides/virtualmachine.yaml", **PLACEMENT), STATUS),
        (VirtualMachineStrategy(), example("tiny.yaml"), STATUS),
        (MigrationStrategy(), example("slides/migration.yaml", nodeSelector={"a": "b"}), {"phase": "Running", "sourceNode": "a"}),
    ],
    ids=["slides", "tiny", "migration"],
)
def test_no_field_makes_the_server_fail(strategy: Strategy, obj: Object, status: Object) -> None:
    subject = Subject(strategy)
    old = canonical.at_revision(subject.create(copy.deepcopy(obj)), 7)
    for base, what in ((obj, "create"), (old, "update"), ({**old, "status": status}, "status")):
        for path in places(base):
            for junk in JUNK:
                sent = mutated(base, path, junk)
                assert outcome(subject, what, sent, old) in {200, 400, 409, 422}, (what, path, junk)


def outcome(subject: Subject, what: str, sent: Object, old: Object) -> int | str:
    try:
        if what == "create":
            subject.create(sent)
        else:
            subject.update(sent, old, status=what == "status")
    except StatusError as error:
        return error.code
    except Exception as error:  # noqa: BLE001 - whatever it is, the test says for which field
        return repr(error)
    return 200
