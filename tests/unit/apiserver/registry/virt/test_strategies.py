from __future__ import annotations

import copy
import functools
import json
import sys
from datetime import UTC, datetime
from types import FrameType
from typing import Any, get_args

import pytest

from apiserver.apis.core.resources import CONFIG_MAPS
from apiserver.apis.meta import errors, objectmeta
from apiserver.apis.meta.objects import HubObject, Object
from apiserver.apis.meta.users import User
from apiserver.apis.meta.validation import MAX_CAUSES, FieldError
from apiserver.apis.virt.domainxml import parsing, reading
from apiserver.apis.virt.lifecycle import phases, power
from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from apiserver.apis.virt.places.streams import CLOSE_GOING_AWAY, CLOSE_POLICY_VIOLATION, Forward, Stream
from apiserver.client.config import Config
from apiserver.client.informer import Informer
from apiserver.client.rest import Client
from apiserver.endpoints import discovery
from apiserver.endpoints.http import upgrade
from apiserver.registry.generic import codec
from apiserver.registry.generic.options import WriteOptions
from apiserver.registry.generic.planning import Part, Planner
from apiserver.registry.generic.strategy import CreatingVerb, Verb
from apiserver.registry.virt import streams, verbs
from apiserver.registry.virt.migrations import MigrationStrategy
from apiserver.registry.virt.node_restriction import NodeRestriction
from apiserver.registry.virt.replica_sets import ReplicaSetStrategy
from apiserver.registry.virt.revoking import RevokedNodes
from apiserver.registry.virt.virtualmachines import VirtualMachineStrategy
from storage.port import Entry
from tests.clients import kstatus
from tests.fakes.admission import asking
from tests.unit.apiserver.apis.virt.domainxml import documents

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def _vm(phase: str = "Running", strategy: str = "RerunOnFailure", **status: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kubevirt.io/v1alpha1",
        "kind": "VirtualMachine",
        "metadata": {"name": "vm1", "namespace": "acc", "uid": "u1"},
        "spec": {"runStrategy": strategy, "domain": {"devices": {"consoles": [{"type": "pty"}], "graphics": [{"type": "vnc"}]}}},
        "status": {"phase": phase, "attempt": 1, "nodeName": "node1", **status},
    }


def test_quantities_are_strings_in_every_spelling() -> None:
    """Mixed types break policies and ``kubectl get --sort-by``."""
    strategy, vm = VirtualMachineStrategy(), _vm()
    vm["spec"]["domain"] |= {"memory": {"guest": 268435456}, "resources": {"limits": {"cpu": 1.5}}}
    stored = Entry("/vms/acc/vm1", json.dumps(vm).encode(), 7, 7)
    strategy.read(vm)
    for domain in (vm["spec"]["domain"], codec.decode(strategy, stored).object["spec"]["domain"]):
        assert domain["memory"]["guest"] == "268435456"
        assert domain["resources"]["limits"]["cpu"] == "1500m"


def _off(result: str = "Succeeded", strategy: str = "RerunOnFailure") -> dict[str, Any]:
    phase = {"Succeeded": "Succeeded", "Failed": "Failed", "Stopped": "Stopped"}[result]
    return _vm(phase, strategy, attempts=[{"number": 1, "result": result}])


SUSPENDING = {"id": "s", "number": 1, "action": "Suspend", "attempt": 1}
IMAGE = {"id": "s", "claimName": "memory", "file": "u1/s", "digest": "sha256:00", "sizeBytes": 1}


START = "to start it: kubectl virt start vm1"
UNREPORTED = "its node does not report: kubectl describe vm vm1"
WAIT = "to wait until it runs: kubectl virt start vm1 --wait"
RESUME = "its memory is saved: kubectl virt resume vm1 continues it, kubectl virt start vm1 --discard-state boots it without that memory"
PAUSED = [{"type": "Paused", "status": "True", "reason": "User"}]
UNPAUSE_IT = "the virtual machine is already on, but paused; to continue it: kubectl virt unpause vm1"
STOP = {"action": "Stop", "attempt": 1, "runStrategy": "RerunOnFailure"}


def _with_claim(vm: dict[str, Any], *disks: dict[str, Any]) -> dict[str, Any]:
    vm["spec"] |= {"managedSave": {"claimName": "Memory"}}
    vm["spec"]["domain"]["devices"]["disks"] = list(disks)
    return vm


def _on_node_disk(vm: dict[str, Any]) -> dict[str, Any]:
    vm["spec"] |= {"managedSave": {"nodeDisk": {}}}
    return vm


def _suspended(result: str = "Suspended", **status: Any) -> dict[str, Any]:
    attempts = [{"number": 1, "result": result, "nodeName": "node1"}]
    return _with_claim(_vm(result, attempts=attempts, managedSave=IMAGE, nodeName=None, **status))


def _call(name: str, vm: dict[str, Any]) -> dict[str, Any]:
    verb = verbs.VERBS[name]
    assert isinstance(verb, Verb)
    return verb.apply(copy.deepcopy(vm), {}, NOW)


def _refusal(name: str, vm: dict[str, Any]) -> str:
    with pytest.raises(errors.Conflict) as caught:
        _call(name, vm) if name != "migrate" else _migrate(vm)
    message = caught.value.message
    prefix = 'Operation cannot be fulfilled on virtualmachines.kubevirt.io "vm1": '
    assert message.startswith(prefix)
    assert caught.value.to_json()["details"] == {"name": "vm1", "group": "kubevirt.io", "kind": "virtualmachines"}
    return message.removeprefix(prefix)


def _migrate(vm: dict[str, Any], body: dict[str, Any] | None = None) -> dict[str, Any]:
    verb = verbs.VERBS["migrate"]
    assert isinstance(verb, CreatingVerb)
    return verb.make(vm, body or {}, NOW)


def test_start_of_a_stopped_machine_requests_the_next_attempt() -> None:
    started = _call("start", _off())
    assert started["status"]["request"] == {
        "action": "Start",
        "time": "2026-01-02T03:04:05.000000Z",
        "runStrategy": "RerunOnFailure",
        "generation": 0,
        "attempt": 2,
    }
    decision = power.decide(started)
    assert (decision.on, decision.attempt) == (True, 2)


@pytest.mark.parametrize(
    "status",
    [
        {"phase": "Mine", "conditions": [{"type": 1}]},
        {"attempts": [{}]},
        "up",
        functools.reduce(lambda inner, _: {"x": inner}, range(100), dict[str, Any]()),
    ],
    ids=["wrong values", "missing", "no object", "deep"],
)
def test_status_in_a_manifest_is_ignored_and_the_rest_validated(status: Any) -> None:
    obj = {"metadata": {"name": "a"}, "spec": {"domain": {"bus": 1}}, "status": status}
    refused = Planner(VirtualMachineStrategy()).read(obj, WriteOptions(field_validation="Strict"))
    assert [each.path for each in refused] == ["spec.domain.bus"]
    assert "status" not in obj
    assert _causes({"domain": 5}, status=status) == ["spec.domain"]


def test_unknown_status_fields_in_a_manifest_are_named() -> None:
    obj = {"metadata": {"name": "a"}, "spec": {"domain": {}}, "status": {"phase": "Mine", "printableStatus": "Up"}}
    refused = Planner(VirtualMachineStrategy()).read(obj, WriteOptions(field_validation="Strict"))
    assert [each.path for each in refused] == ["status.printableStatus"]


def test_a_status_that_is_written_as_such_is_judged() -> None:
    obj = {"metadata": {"name": "a"}, "spec": {"domain": {}}, "status": {"phase": "Mine"}}
    with pytest.raises(errors.Invalid, match=r"status\.phase: Unsupported value"):
        Planner(VirtualMachineStrategy()).read(obj, WriteOptions(), part="status")


def _causes(spec: Any, metadata: dict[str, Any] | None = None, strategy: Any = None, **more: Any) -> list[str]:
    obj = {
        "apiVersion": "kubevirt.io/v1alpha1",
        "kind": "VirtualMachine",
        "metadata": {"name": "a", **(metadata or {})},
        "spec": spec,
        **more,
    }
    with pytest.raises(errors.Invalid) as caught:
        Planner(strategy or VirtualMachineStrategy()).read(obj, WriteOptions(field_validation="Strict"))
    return [each["field"] for each in caught.value.to_json()["details"]["causes"]]


MISSHAPEN_AND_WRONG: dict[str, Any] = {
    "runStrategy": "Sometimes",
    "rerun": {"limit": 99, "startTimeoutSeconds": "long"},
    "terminationGracePeriodSeconds": -1,
    "nodeSelector": {"a b": "c", "cpu": 5},
    "priorityClassName": "A",
    "tolerations": [{"operator": "Maybe"}, "no", {"operator": "Exists", "value": "x", "key": "a"}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "x"}, {"key": "-", "operator": "In"}]}]
            },
            "preferredDuringSchedulingIgnoredDuringExecution": [{"preference": {}}, {"weight": 500, "preference": {}}],
        }
    },
    "topologySpreadConstraints": [{"topologyKey": "zone"}, {"topologyKey": "zone", "maxSkew": 0, "whenUnsatisfiable": "DoNotSchedule"}],
    "domain": {
        "cpu": {"cores": "1", "threads": 0},
        "memory": {"guest": "1Mi"},
        "machine": {"type": "q36"},
        "firmware": {"uuid": "x", "kernelBoot": {"container": {"kernelPath": "vmlinuz"}}},
        "devices": {
            "disks": [
                {"serial": "a/b"},
                {"name": "root", "type": "PersistentVolumeClaim", "source": {"name": "data"}, "bootOrder": 1.5},
                7,
                {"name": "root", "type": "PersistentVolumeClaim", "source": {"name": "Data"}},
            ],
            "interfaces": [{"mac": "02:00:00:00:00:01"}],
            "graphics": [{"type": "vnc"}, {}, {"type": "vnc"}],
        },
    },
}


def test_too_many_shape_errors_stop_further_validation() -> None:
    """Otherwise a body of 120 KB blocks virt-api for 1.2 s."""

    class Judging(VirtualMachineStrategy):
        judged = 0

        def validate(self, obj: Object) -> list[FieldError]:
            self.judged += 1
            return super().validate(obj)

    for tolerations, judged in ((MAX_CAUSES - 1, 1), (MAX_CAUSES, 0)):
        strategy = Judging()
        assert "spec.tolerations[0]" in _causes({"domain": {}, "tolerations": [1] * tolerations}, strategy=strategy)
        assert strategy.judged == judged


@pytest.mark.parametrize("field", ["ownerReferences", "finalizers", "managedFields"])
def test_overlong_metadata_list_is_refused_before_its_items(field: str) -> None:
    """Otherwise a body of 3 MB with 1.5 million numbers blocks virt-api for seconds."""
    many: list[Any] = [1] * (objectmeta.MAX_ITEMS + 1)
    assert _causes({"domain": {}, "runStrategy": 5}, {field: many}) == [f"metadata.{field}", "spec.runStrategy"]
    assert _causes({"domain": {}}, {field: many[1:]}) != [f"metadata.{field}"]


def test_refusal_names_wrong_shapes_and_values_of_all_fields() -> None:
    domain = "spec.domain"
    assert set(_causes(MISSHAPEN_AND_WRONG, {"labels": {"-": "x"}})) == {
        "metadata.labels",
        "spec.runStrategy",
        "spec.rerun.limit",
        "spec.rerun.startTimeoutSeconds",
        "spec.terminationGracePeriodSeconds",
        "spec.nodeSelector",
        "spec.nodeSelector.cpu",
        "spec.priorityClassName",
        "spec.tolerations[0].operator",
        "spec.tolerations[1]",
        "spec.tolerations[2].operator",
        "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].operator",
        "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[1].key",
        "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[1].values",
        "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight",
        "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[1].weight",
        "spec.topologySpreadConstraints[0].maxSkew",
        "spec.topologySpreadConstraints[0].whenUnsatisfiable",
        "spec.topologySpreadConstraints[1].maxSkew",
        f"{domain}.cpu.cores",
        f"{domain}.cpu.threads",
        f"{domain}.memory.guest",
        f"{domain}.machine.type",
        f"{domain}.firmware.uuid",
        f"{domain}.firmware.kernelBoot.container.image",
        f"{domain}.firmware.kernelBoot.container.kernelPath",
        f"{domain}.devices.disks[0].type",
        f"{domain}.devices.disks[0].source",
        f"{domain}.devices.disks[0].serial",
        f"{domain}.devices.disks[1].bootOrder",
        f"{domain}.devices.disks[2]",
        f"{domain}.devices.disks[3].name",
        f"{domain}.devices.disks[3].source.name",
        f"{domain}.devices.interfaces[0].name",
        f"{domain}.devices.interfaces[0].mac",
        f"{domain}.devices.graphics",
        f"{domain}.devices.graphics[1].type",
        f"{domain}.devices.graphics[2].type",
    }


@pytest.mark.parametrize(
    "spec", [None, 7, "x", [], {}, {"domain": []}, {"domain": {"devices": {"disks": {}}}}, {"affinity": 1, "domain": {"cpu": 1}}]
)
def test_nothing_is_misshapen_beyond_naming(spec: Any) -> None:
    if spec != {}:
        assert _causes(spec, {"name": 5})
    assert set(_causes({"selector": spec, "nodeSelector": {"a b": "c"}}, strategy=MigrationStrategy())) >= {"spec.nodeSelector"}


def _edited(vm: dict[str, Any], **spec: Any) -> dict[str, Any]:
    new = copy.deepcopy(vm)
    new["spec"] |= spec
    VirtualMachineStrategy().prepare_for_update(new, vm)
    new["metadata"]["generation"] = vm["metadata"].get("generation", 0) + 1
    return new


def test_an_old_stop_does_not_come_back_with_an_older_strategy() -> None:
    vm = _vm(strategy="Always")
    vm["metadata"]["generation"] = 1
    stopped = _call("stop", vm)
    assert stopped["status"]["request"]["generation"] == 1
    renamed = _edited(stopped, nodeName="node2")
    assert not power.decide(renamed).on, "other edits do not start a machine that somebody stopped"
    assert power.decide(_edited(_edited(renamed, runStrategy="Halted"), runStrategy="Always")).on
    again = _call("stop", _edited(_edited(renamed, runStrategy="Halted"), runStrategy="Always"))
    assert not power.decide(again).on


@pytest.mark.parametrize("strategy", power.RUN_STRATEGIES)
def test_stop_then_start_works_under_every_strategy(strategy: str) -> None:
    vm = _vm(strategy=strategy, request={"action": "Start", "attempt": 1, "runStrategy": strategy})
    stopped = _call("stop", vm)
    assert not power.decide(stopped).on
    stopped["status"].update(phase="Stopped", attempts=[{"number": 1, "result": "Stopped"}])
    started = _call("start", stopped)
    assert power.decide(started).on


def test_restart_ends_this_attempt_and_asks_for_the_next() -> None:
    restarted = _call("restart", _vm())
    assert power.decide(restarted).attempt == 2
    assert _refusal("restart", restarted) == "the virtual machine is already being restarted"
    assert _refusal("pause", restarted) == "the virtual machine is being restarted"


def test_pause_and_unpause_take_turns() -> None:
    paused = _call("pause", _vm())
    assert power.wants_paused(paused)
    assert _refusal("pause", paused) == "the virtual machine is already paused"
    assert not power.wants_paused(_call("unpause", paused))
    assert _refusal("unpause", _vm()) == "the virtual machine is not paused (Running)"


FAULT = [{"type": "Paused", "status": "True", "reason": "DiskFull"}]
NO_LEVEL = {"action": "Start", "time": "2026-01-01T00:00:00Z", "runStrategy": "RerunOnFailure", "generation": 0, "attempt": 1}
MOMENT = "2026-01-02T03:04:05.000000Z"


def test_unpause_after_a_fault_requests_one_resume() -> None:
    status = _call("unpause", _vm(conditions=FAULT))["status"]
    (operation,) = status["operations"]
    assert operation.pop("id")
    assert operation == {"number": 1, "action": "Resume", "attempt": 1, "time": MOMENT}
    assert "request" not in status
    assert status["pause"]["wanted"] is False


@pytest.mark.parametrize("paused", [[], [{"type": "Paused", "status": "True", "reason": "User"}], [{**FAULT[0], "status": "False"}]])
def test_unpause_after_a_users_pause_sets_only_the_level(paused: list[dict[str, Any]]) -> None:
    status = _call("unpause", _vm(pause={"wanted": True, "attempt": 1}, conditions=paused))["status"]
    assert status["pause"] == {"wanted": False, "attempt": 1, "generation": 0, "time": MOMENT}
    assert "operations" not in status


@pytest.mark.parametrize("verb", ["stop", "restart", "reset"])
def test_pause_survives_other_verbs_but_not_a_new_attempt(verb: str) -> None:
    paused = _call("pause", _vm())
    after = _call(verb, paused)
    assert after["status"]["pause"] == paused["status"]["pause"]
    assert power.wants_paused(after)
    after["status"] |= {"attempt": 2}
    assert not power.wants_paused(after)


@pytest.mark.parametrize("verb", ["pause", "unpause", "reset"])
def test_verbs_on_a_running_guest_keep_the_power_request(verb: str) -> None:
    vm = _vm(request=NO_LEVEL, conditions=FAULT)
    assert _call(verb, vm)["status"]["request"] == NO_LEVEL


@pytest.mark.parametrize("strategy", power.RUN_STRATEGIES)
def test_pause_of_an_older_release_is_kept_and_then_rewritten(strategy: str) -> None:
    old = {"action": "Pause", "time": "2026-01-01T00:00:00Z", "runStrategy": strategy, "generation": 0, "attempt": 1}
    vm = _vm(strategy=strategy, request=old)
    assert power.wants_paused(vm)
    assert _refusal("pause", vm) == "the virtual machine is already paused"
    assert power.decide(vm).on
    restarted = _call("restart", vm)
    assert restarted["status"]["pause"] == {"wanted": True, "attempt": 1, "generation": 0, "time": "2026-01-01T00:00:00Z"}
    assert restarted["status"]["request"]["action"] == "Restart"
    unpaused = _call("unpause", vm)
    assert not power.wants_paused(unpaused)
    assert unpaused["status"]["request"] == {**old, "action": "Start"}
    assert (power.decide(unpaused).on, power.decide(unpaused).attempt) == (power.decide(vm).on, power.decide(vm).attempt)
    assert power.wants_paused(_call("reset", vm)), "virt-handler of the earlier version reads its own form"
    assert _call("reset", vm)["status"]["request"] == old


def _reset(vm: dict[str, Any], body: dict[str, Any] | None = None) -> dict[str, Any]:
    verb = verbs.VERBS["reset"]
    assert isinstance(verb, Verb)
    return verb.apply(copy.deepcopy(vm), body or {}, NOW)


def test_a_reset_is_one_operation_with_an_id_of_its_own() -> None:
    once = _reset(_vm())
    twice = _reset(once)
    first, second = twice["status"]["operations"]
    assert once["status"]["operations"] == [first]
    assert (first["number"], second["number"]) == (1, 2)
    assert first["id"] != second["id"]
    assert second == {"id": second["id"], "number": 2, "action": "Reset", "attempt": 1, "time": MOMENT}


def test_reset_with_a_known_id_succeeds_without_a_second_reset() -> None:
    once = _reset(_vm(), {"id": "my-reset"})
    assert once["status"]["operations"][0]["id"] == "my-reset"
    assert _reset(once, {"id": "my-reset"}) == once
    once["status"]["phase"] = "Stopping"
    assert _reset(once, {"id": "my-reset"}) == once, "what was asked for may be over by now"
    assert _refusal("reset", once).startswith("cannot reset")
    resumed = _vm(operations=[{"id": "r", "number": 1, "action": "Resume", "attempt": 1}])
    with pytest.raises(errors.Conflict, match="the id r is that of another call: Resume"):
        _reset(resumed, {"id": "r"})


@pytest.mark.parametrize("given", ["", "../x", "a b", "x" * 64, 5, ["a"]])
def test_an_id_that_is_none_is_refused(given: Any) -> None:
    with pytest.raises(errors.Invalid) as caught:
        _reset(_vm(), {"id": given})
    assert [each["field"] for each in caught.value.to_json()["details"]["causes"]] == ["id"]


def _operations(*results: str) -> list[dict[str, Any]]:
    return [
        {"id": f"o{number}", "number": number, "action": "Reset", "attempt": 1, **({"result": result} if result else {})}
        for number, result in enumerate(results, 1)
    ]


def test_oldest_finished_operation_is_dropped_not_renumbered() -> None:
    full = _vm(operations=_operations("", "Failed", "Succeeded", *[""] * 7))
    kept = _reset(full)["status"]["operations"]
    assert [each["number"] for each in kept] == [1, 3, 4, 5, 6, 7, 8, 9, 10, 11]


def test_no_operation_is_taken_while_ten_have_no_result() -> None:
    full = _vm(operations=_operations(*[""] * 10))
    assert _refusal("reset", full) == "10 operations of the virtual machine are unfinished; wait until one of status.operations ends"
    assert _reset(full, {"id": "o3"}) == full
    full["status"]["conditions"] = FAULT
    assert "10 operations" in _refusal("unpause", full)


@pytest.mark.parametrize("phase", ["Failed", "Stopped", "Succeeded"])
def test_the_write_that_ends_an_attempt_ends_its_operations(phase: str) -> None:
    old = _vm(operations=_operations("Succeeded", ""))
    new = copy.deepcopy(old)
    new["status"] |= {"phase": phase, "attempts": [{"number": 1, "result": "Failed", "endTime": "2026-01-02T00:00:00Z"}]}
    VirtualMachineStrategy().prepare_for_status_update(new, old)
    first, second = new["status"]["operations"]
    assert first == old["status"]["operations"][0]
    assert (second["result"], second["completionTime"]) == ("Failed", "2026-01-02T00:00:00Z")
    assert second["message"] == "the attempt ended before the result was known"
    going_on = copy.deepcopy(old)
    VirtualMachineStrategy().prepare_for_status_update(going_on, old)
    assert going_on == old


@pytest.mark.parametrize("current", [0, 2])
def test_operations_of_an_unlisted_attempt_fail(current: int) -> None:
    """Also of one that never began, in a forged status: they would block later ones."""
    old = _vm(attempt=current, operations=_operations(""))
    VirtualMachineStrategy().prepare_for_status_update(old, old)
    assert old["status"]["operations"][0]["result"] == "Failed"


@pytest.mark.parametrize(
    ("verb", "vm", "reason"),
    [
        ("start", _vm(), "the virtual machine is already on (Running)"),
        ("start", _vm(conditions=PAUSED), UNPAUSE_IT),
        ("resume", _vm(conditions=PAUSED), UNPAUSE_IT),
        ("start", _vm("", attempt=0), f"the virtual machine is already being started (Pending); {WAIT}"),
        ("start", _vm("Scheduled"), "the virtual machine is already on (Starting)"),
        ("stop", _off(), "the virtual machine is already off (Succeeded)"),
        (
            "stop",
            _vm("Stopping", request={"action": "Stop", "attempt": 1, "runStrategy": "RerunOnFailure"}),
            "the virtual machine is already being shut down",
        ),
        ("restart", _off(), f"the virtual machine is off (Succeeded); {START}"),
        ("restart", _vm("Pending", attempt=0), f"the virtual machine is already being started (Pending); {WAIT}"),
        ("restart", _vm("Stopping", request=STOP), f"the virtual machine is being shut down (Stopping); {START}"),
        ("pause", _off(), f"cannot pause a virtual machine that is not running (Succeeded); {START}"),
        ("reset", _off(), f"cannot reset a virtual machine that is not running (Succeeded); {START}"),
        ("reset", _vm("Stopping", request=STOP), f"cannot reset a virtual machine that is not running (Stopping); {START}"),
        (
            "reset",
            _vm("Unknown"),
            "cannot reset a virtual machine that is not running (Unknown); its node does not report: kubectl describe vm vm1",
        ),
        (
            "reset",
            _vm(request={"action": "Stop", "attempt": 1, "runStrategy": "RerunOnFailure"}),
            "the virtual machine is being shut down",
        ),
        (
            "reset",
            _vm(request={"action": "Restart", "attempt": 2, "runStrategy": "RerunOnFailure"}),
            "the virtual machine is being restarted",
        ),
        (
            "reset",
            _vm(conditions=[{"type": "Paused", "status": "True", "reason": "GuestSuspended"}]),
            "the guest suspended itself to memory; kubectl virt unpause wakes it, and then it can be reset",
        ),
        ("suspend", _off(), f"cannot suspend a virtual machine that is not running (Succeeded); {START}"),
        (
            "suspend",
            _vm(),
            "the virtual machine has no place for its memory: set spec.managedSave.claimName and restart it first, or set "
            "spec.managedSave.nodeDisk",
        ),
        (
            "suspend",
            _on_node_disk(_vm(running={"managedSave": {"claimName": "c"}})),
            "the guest's pod has claim c of an earlier spec.managedSave: restart the virtual machine first",
        ),
        (
            "suspend",
            _with_claim(_vm(running={"domain": {}})),
            "spec.managedSave was set after the guest's start: restart the virtual machine first",
        ),
        (
            "suspend",
            _with_claim(_vm(), {"name": "root", "type": "Image", "source": {"reference": "i"}, "readOnly": False}),
            "what the guest wrote to disk root exists only in its pod, which suspend deletes: use a PersistentVolumeClaim",
        ),
        *(
            (verb, _with_claim(_vm(operations=[SUSPENDING])), "the virtual machine is being suspended")
            for verb in ("suspend", "pause", "unpause", "reset", "migrate")
        ),
        ("resume", _vm(), "the virtual machine is already on (Running)"),
        ("resume", _off(), "the virtual machine is not suspended; start boots it"),
        ("stop", _suspended(), "the virtual machine is already off (Suspended)"),
        ("restart", _suspended(), f"the virtual machine is off (Suspended); {RESUME}"),
        ("restart", _suspended("Stopped", request=STOP), f"the virtual machine is off (Stopped); {RESUME}"),
        ("unpause", _suspended(), f"cannot unpause a virtual machine that is not running (Suspended); {RESUME}"),
        ("unpause", _vm("Scheduled"), f"cannot unpause a virtual machine that is not running (Starting); {WAIT}"),
        ("migrate", _vm("Pending"), f"cannot migrate a virtual machine that is not running (Pending); {WAIT}"),
        *(
            (
                verb,
                _vm(migration={"name": "m1", "phase": phase}),
                'the virtual machine is being migrated (migration "m1"): wait until it ends, or cancel it: kubectl delete migrations/m1',
            )
            for verb in ("pause", "unpause", "reset", "migrate")
            for phase in ("Scheduling", "PreparingTarget", "TargetReady", "Running")
        ),
        (
            "migrate",
            _vm(conditions=[{"type": "Migratable", "status": "False", "message": "disk0 cannot be shared"}]),
            "the virtual machine cannot be migrated: disk0 cannot be shared",
        ),
    ],
)
def test_a_verb_that_does_not_fit_is_a_conflict_that_says_why(verb: str, vm: dict[str, Any], reason: str) -> None:
    assert _refusal(verb, vm) == reason


@pytest.mark.parametrize("verb", sorted(verbs.VERBS.keys() - {"poweroff", "sendkey", "cancelmigration"}))
def test_verbs_are_refused_by_a_machine_that_is_being_deleted(verb: str) -> None:
    """Except poweroff, and a shorter grace period: test_verbs."""
    vm = _vm()
    vm["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert _refusal(verb, vm) == "the virtual machine is being deleted"


@pytest.mark.parametrize("verb", ["start", "restart"])
def test_start_and_restart_skip_the_pause_after_a_failure(verb: str) -> None:
    failed = _off("Failed", "Always")
    assert power.decide(failed).failures == 1
    decision = power.decide(_call(verb, failed))
    assert (decision.on, decision.attempt, decision.reason, decision.failures) == (True, 2, "Requested", 0)
    assert _refusal("start", _call(verb, failed)) == f"the virtual machine is already being started (Starting); {WAIT}"


def test_suspend_is_an_operation_and_resume_the_next_attempt() -> None:
    (operation,) = _call("suspend", _with_claim(_vm()))["status"]["operations"]
    assert (operation["action"], operation["attempt"]) == ("Suspend", 1)
    for verb in ("resume", "start"):
        status = _call(verb, _suspended())["status"]
        assert (status["request"]["action"], status["request"]["attempt"]) == ("Start", 2)
        assert status["managedSave"] == IMAGE


def _discarding(vm: dict[str, Any], given: Any = True) -> dict[str, Any]:
    verb = verbs.VERBS["start"]
    assert isinstance(verb, Verb)
    return verb.apply(copy.deepcopy(vm), {"discardState": given}, NOW)


@pytest.mark.parametrize("result", ["Suspended", "Failed"])
def test_a_start_may_discard_the_image_and_its_hardware(result: str) -> None:
    status = _discarding(_suspended(result, running={"domain": {}, "managedSave": {"claimName": "memory"}}))["status"]
    assert "managedSave" not in status
    assert "running" not in status
    assert status["request"]["attempt"] == 2


@pytest.mark.parametrize(
    ("vm", "reason"),
    [
        (_off(), "the virtual machine is not suspended; start boots it"),
        (_vm(managedSave=IMAGE), "the virtual machine is already on (Running)"),
        (
            _suspended() | {"spec": {"runStrategy": "RerunOnFailure", "managedSave": {"claimName": "other"}}},
            "the image is in PersistentVolumeClaim memory, which spec.managedSave no longer names: it could not be deleted",
        ),
    ],
)
def test_an_image_that_cannot_be_discarded_is_a_conflict(vm: dict[str, Any], reason: str) -> None:
    with pytest.raises(errors.Conflict) as caught:
        _discarding(vm)
    assert str(caught.value).endswith(reason)


def test_discard_state_is_true_or_false_and_only_of_start() -> None:
    with pytest.raises(errors.Invalid, match="must be true or false"):
        _discarding(_suspended(), "yes")
    verb = verbs.VERBS["resume"]
    assert isinstance(verb, Verb)
    with pytest.raises(errors.Invalid, match="unknown field"):
        verb.apply(_suspended(), {"discardState": True}, NOW)
    assert "managedSave" in _discarding(_suspended(), None)["status"]


def test_suspended_machine_keeps_its_locks_and_what_runs() -> None:
    strategy, disk = VirtualMachineStrategy(), {"name": "root", "type": "PersistentVolumeClaim", "source": {"name": "c"}, "readOnly": False}
    old = _suspended()
    old["spec"]["domain"]["devices"]["disks"] = [disk]
    assert strategy.locks(old) == {"disk/acc/c"}
    assert strategy.shared_locks(old) == {("files/acc/memory", "state")}
    new = copy.deepcopy(old)
    new["spec"]["domain"]["devices"]["disks"] = []
    strategy.prepare_for_update(new, old)
    assert strategy.locks(new) == {"disk/acc/c"}
    later = copy.deepcopy(new)
    later["status"]["phase"] = "Scheduling"
    strategy.prepare_for_status_update(later, new)
    assert later["status"]["running"]["domain"]["devices"]["disks"] == [disk]
    without = copy.deepcopy(new)
    del without["status"]["managedSave"]
    strategy.prepare_for_status_update(without, new)
    assert "running" not in without["status"]
    assert strategy.locks(without) == set()


def test_a_verb_refuses_a_body_that_it_does_not_understand() -> None:
    verb = verbs.VERBS["stop"]
    assert isinstance(verb, Verb)
    with pytest.raises(errors.Invalid, match='unknown field "force"'):
        verb.apply(_vm(), {"force": True}, NOW)
    assert verb.apply(_vm(), {"kind": "Options", "apiVersion": "v1"}, NOW)


def test_new_machine_is_not_yet_as_its_spec_says() -> None:
    """Otherwise ``helm install --wait`` (kstatus) takes it for finished."""
    vm = _vm()
    planner = Planner(VirtualMachineStrategy())
    created = planner.create(HubObject(vm), (), NOW)
    assert created["status"] == {"observedGeneration": 0}
    assert kstatus.result(created) == "InProgress"


def test_migrate_makes_a_migration_that_its_strategy_accepts() -> None:
    migration = _migrate(_vm(), {"nodeSelector": {"kubevirt.io/hostname": "node2"}})
    assert migration["metadata"] == {"generateName": "vm1-", "namespace": "acc"}
    assert migration["spec"] == {"selector": {"name": "vm1"}, "nodeSelector": {"kubevirt.io/hostname": "node2"}}
    strategy = MigrationStrategy()
    reading = strategy.read(migration)
    assert (reading.unknown, reading.errors) == ((), ())
    strategy.prepare_for_create(migration)
    assert migration["metadata"]["finalizers"] == ["kubevirt.io/migration"]
    assert strategy.validate(migration) == []
    with pytest.raises(errors.Invalid, match="nodeSelector"):
        _migrate(_vm(), {"nodeSelector": {"a": 1}})


@pytest.mark.parametrize("label", ["kubernetes.io/hostname", "kubevirt.io/hostname"])
def test_migrate_refuses_the_node_where_the_guest_runs(label: str) -> None:
    vm = _vm()
    here, there = ({"nodeSelector": {label: each}} for each in (vm["status"]["nodeName"], "node9"))
    assert _migrate(vm, there)["spec"]["nodeSelector"] == there["nodeSelector"]
    with pytest.raises(errors.Conflict, match="the guest already runs on node node1: choose another node, or none"):
        _migrate(vm, here)


def test_a_stream_of_a_deleted_machine_offers_no_start() -> None:
    vm = _off()
    vm["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert streams.absent(vm) == "it is not running (phase Succeeded); it is being deleted"


@pytest.mark.parametrize("phase", phases.VM_PHASES)
def test_a_stream_of_a_machine_that_cannot_start_says_why(phase: str) -> None:
    waits = {"type": "Ready", "status": "False", "reason": "DisksNotReady", "message": "PersistentVolumeClaim not found: root"}
    found = streams.refuse(_vm(phase=phase, conditions=[waits]), "console")
    expected = f"it is not running (phase {phase})"
    if phase in ("Pending", "Scheduling", "Scheduled"):
        expected += ": PersistentVolumeClaim not found: root"
    expected += f"; {UNREPORTED if phase == 'Unknown' else WAIT}"
    assert found == (None if phase in ("Running", "Stopping") else expected)


def test_a_port_of_a_paused_guest_is_refused_with_the_reason() -> None:
    paused = {"type": "Paused", "status": "True", "reason": "PausedByUser", "message": "paused"}
    found = streams.unreachable(_vm(conditions=[paused]), Forward("tcp", 22))
    assert found is not None
    assert "paused" in found


def test_migrate_gives_the_priority_that_it_is_told_of() -> None:
    for priority in (-100, 0, 100):
        migration = _migrate(_vm(), {"priority": priority})
        assert migration["spec"]["priority"] == priority
        assert MigrationStrategy().validate(migration) == []
    assert "priority" not in _migrate(_vm(), {"priority": None})["spec"]
    for wrong in (101, -101, 1.5, True, "1", [1]):
        with pytest.raises(errors.Invalid, match="priority"):
            _migrate(_vm(), {"priority": wrong})
    with pytest.raises(errors.Invalid) as bounded:
        _migrate(_vm(), {"priority": 200})
    said = 'VirtualMachine.kubevirt.io "vm1" is invalid: priority: Invalid value: 200: must be between -100 and 100, inclusive'
    assert bounded.value.message == said
    with pytest.raises(errors.Invalid) as both:
        _migrate(_vm(), {"priority": 101, "nodeSelector": 1, "force": True})
    assert all(each in both.value.message for each in ("priority", "nodeSelector", "force"))


def test_the_migration_of_the_slides_is_accepted_as_it_is() -> None:
    obj = {
        "kind": "Migration",
        "metadata": {"generateName": "my-migration", "namespace": "default"},
        "spec": {"nodeSelector": {"kubevirt.io/hostname": "node1"}, "selector": {"name": "testvm"}},
        "status": {"phase": "Succeeded"},
    }
    strategy = MigrationStrategy()
    reading = strategy.read(obj)
    assert (reading.unknown, reading.errors) == ((), ())
    assert strategy.validate(obj) == []


@pytest.mark.parametrize(
    ("priority", "wrong"),
    [
        (-100, []),
        (0, []),
        (100, []),
        (-101, ["spec.priority: Invalid value: -101: must be greater than or equal to -100"]),
        (101, ["spec.priority: Invalid value: 101: must be less than or equal to 100"]),
    ],
)
def test_priorities_of_migrations_have_bounds(priority: int, wrong: list[str]) -> None:
    strategy = MigrationStrategy()
    obj = {"metadata": {"name": "m", "namespace": "acc"}, "spec": {"selector": {"name": "vm1"}, "priority": priority}}
    assert (strategy.read(obj).errors, [str(each) for each in strategy.validate(obj)]) == ((), wrong)
    assert "spec.priority" in _causes({"selector": {"name": "vm1"}, "priority": "x"}, strategy=strategy)
    unchanged = {"metadata": {"name": "m", "namespace": "acc"}, "spec": {"selector": {"name": "vm1"}}}
    assert strategy.validate_update(unchanged, unchanged) == []


def test_only_an_unfinished_migration_locks_its_machine() -> None:
    strategy = MigrationStrategy()
    obj: dict[str, Any] = {"metadata": {"namespace": "acc", "name": "m2"}, "spec": {"selector": {"name": "vm1"}}}
    assert strategy.locks(obj) == {"migrating/acc/vm1"}
    for phase in ("Succeeded", "Failed", "Cancelled"):
        assert strategy.locks({**obj, "status": {"phase": phase}}) == frozenset()
    begun = {"metadata": {"name": "m1", "creationTimestamp": "2026-01-02T03:04:05Z"}}
    text = strategy.lock_taken(obj, "migrating/acc/vm1", "acc/m1", begun)
    assert text == (
        'a migration of virtual machine "vm1" is already in progress: "m1", begun 2026-01-02T03:04:05Z; wait '
        "until it ends, or cancel it: kubectl delete migrations/m1"
    )
    unread = strategy.lock_taken(obj, "migrating/acc/vm1", "acc/m1", None)
    assert unread == text.replace(", begun 2026-01-02T03:04:05Z", "")


def test_a_migration_is_immutable_and_its_end_is_final() -> None:
    strategy = MigrationStrategy()
    old: dict[str, Any] = {"metadata": {"namespace": "acc"}, "spec": {"selector": {"name": "vm1"}}, "status": {"phase": "Failed"}}
    new = {**old, "spec": {"selector": {"name": "vm2"}}}
    assert [str(each) for each in strategy.validate_update(new, old)] == [
        "spec.selector: Forbidden: a Migration is immutable; delete it, which cancels it if it is unfinished, and create another"
    ]
    reopened = {**old, "status": {"phase": "Running"}}
    assert [str(each) for each in strategy.validate_status_update(reopened, old)] == ["status.phase: Forbidden: Failed is final"]
    assert strategy.validate_status_update(old, reopened) == []


@pytest.mark.parametrize(
    "phase", ["", "Pending", "Scheduling", "PreparingTarget", "TargetReady", "Running", "Succeeded", "Failed", "Cancelled"]
)
@pytest.mark.parametrize("deleting", [{}, {"deletionTimestamp": "2026-01-02T03:04:05Z"}], ids=["kept", "deleted"])
def test_a_migration_is_let_go_once_it_is_over_and_no_sooner(phase: str, deleting: dict[str, str]) -> None:
    """Removing the labels of the target's pod could lead to a second QEMU."""
    strategy = MigrationStrategy()
    metadata = {"namespace": "acc", "name": "m1", "finalizers": ["kubevirt.io/migration", "a.b/c"], **deleting}
    old = {"metadata": metadata, "spec": {"selector": {"name": "vm1"}}, "status": {"phase": phase}}
    refused = phase not in ("Succeeded", "Failed", "Cancelled")
    for left in ([], ["a.b/c"]):
        new = {**old, "metadata": {**metadata, "finalizers": left}}
        assert [each.path for each in strategy.validate_update(new, old)] == ["metadata.finalizers"] * refused
        assert strategy.validate_update(new, new) == [], "one that an older version let go can be written"
    assert strategy.validate_update({**old, "metadata": {**metadata, "finalizers": ["kubevirt.io/migration"]}}, old) == []


@pytest.mark.parametrize("strategy", [VirtualMachineStrategy(), MigrationStrategy()])
def test_rows_fit_their_columns_even_of_an_empty_object(strategy: VirtualMachineStrategy | MigrationStrategy) -> None:
    assert len(strategy.cells({}, NOW)) == len(strategy.columns())
    assert strategy.selectable_fields({}).keys() == strategy.selectable_fields({"spec": {}, "status": {"phase": "Running"}}).keys()
    assert all(column.description for column in strategy.columns())


def test_row_of_an_xml_machine_shows_cpus_and_memory() -> None:
    strategy = VirtualMachineStrategy()
    vm = {"spec": {"domainXML": documents.document(vcpu="<vcpu>3</vcpu>")}}
    row = dict(zip([column.name for column in strategy.columns()], strategy.cells(vm, NOW), strict=True))
    assert (row["CPUs"], row["Memory"]) == (3, "128Mi")


def test_the_documents_of_a_long_list_are_read_once() -> None:
    strategy, read = VirtualMachineStrategy(), list[str]()
    vms = [{"spec": {"domainXML": documents.document(inside=f"<title>row {number}</title>")}} for number in range(reading.REMEMBERED + 20)]

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is parsing.parse.__code__:
            read.append(frame.f_locals["text"])

    sys.setprofile(note)
    try:
        rows = [[strategy.cells(each, NOW) for each in vms] for _ in range(3)]
    finally:
        sys.setprofile(None)
    assert read == [each["spec"]["domainXML"] for each in vms]
    assert rows[1] == rows[2] == rows[0]


def test_the_row_of_a_machine_shows_what_people_look_for() -> None:
    strategy = VirtualMachineStrategy()
    vm = _vm(
        podName="virt-launcher-vm1-abcde",
        conditions=[{"type": "Ready", "status": "True"}],
        interfaces=[{"name": "default", "ipAddress": "10.0.0.7"}],
    )
    strategy.default(vm)
    row = dict(zip([column.name for column in strategy.columns()], strategy.cells(vm, NOW), strict=True))
    assert row == {
        "Status": "Running",
        "Ready": "True",
        "Node": "node1",
        "IP": "10.0.0.7",
        "Pod": "virt-launcher-vm1-abcde",
        "CPUs": 1,
        "Memory": "512Mi",
        "Run-Strategy": "RerunOnFailure",
        "Reason": None,
    }
    assert strategy.selectable_fields(vm) == {"spec.nodeName": "", "status.nodeName": "node1", "status.phase": "Running"}


@pytest.mark.parametrize("phase", ["", *phases.VM_PHASES])
def test_the_table_names_a_pod_only_while_there_is_one(phase: str) -> None:
    strategy = VirtualMachineStrategy()
    row = dict(zip([each.name for each in strategy.columns()], strategy.cells(_vm(phase, podName="p"), NOW), strict=True))
    assert row["Pod"] == ("p" if phase in {"Scheduling", "Scheduled", "Running", "Stopping", "Unknown"} else None)


def _moved(vm: dict[str, Any], **spec: Any) -> list[str]:
    return list(VirtualMachineStrategy().warnings_on_update({**vm, "spec": {**vm["spec"], **spec}}, vm))


@pytest.mark.parametrize("phase", ["", *phases.VM_PHASES])
def test_placement_edit_warns_when_it_takes_effect(phase: str) -> None:
    text = (
        'virtual machine "vm1" stays in its present pod; the change takes effect at its next start or migration '
        "(a waiting migration keeps its target: delete it and migrate again)"
    )
    is_somewhere = phase in {"Scheduled", "Running", "Stopping", "Unknown"}
    warnings = [f"spec.nodeSelector: {text}"] if is_somewhere else []
    assert _moved(_vm(phase), nodeSelector={"disk": "none has this"}) == warnings
    assert _moved(_vm(phase), runStrategy="Always", rerun={"limit": 1}) == []
    both = [f"spec.nodeSelector, spec.tolerations: {text}"] if is_somewhere else []
    assert _moved(_vm(phase), tolerations=[{"operator": "Exists"}], nodeSelector={"a": "b"}) == both


@pytest.mark.parametrize("phase", ["", *phases.VM_PHASES])
def test_hardware_edit_warns_when_it_takes_effect(phase: str) -> None:
    vm = _vm(phase)
    new = copy.deepcopy(_edited(vm, domain={"memory": {"guest": "1Gi"}, **vm["spec"]["domain"]}))
    text = (
        'spec.domain.memory.guest: the guest of virtual machine "vm1" keeps its hardware until it '
        "ends; the change takes effect at its next start"
    )
    if phase == "Scheduled":
        text = (
            'spec.domain.memory.guest: virtual machine "vm1" is starting with the earlier spec; to use the edit: kubectl virt restart vm1'
        )
    has_guest = phase in {"Scheduled", "Running", "Stopping", "Unknown"}
    strategy = VirtualMachineStrategy()
    assert strategy.warnings_on_update(new, vm) == ((text,) if has_guest else ())
    assert strategy.warnings_on_update(new, new) == (), "an apply of the same says nothing again"
    assert strategy.warnings_on_update(_edited(new, domain=vm["spec"]["domain"]), new) == (), "it says what runs"
    other = copy.deepcopy(_edited(new, domain={**new["spec"]["domain"], "cpu": {"cores": 2}}))
    assert ["memory" in each for each in strategy.warnings_on_update(other, new)] == [False] * has_guest, "it says what this edit changes"


@pytest.mark.parametrize(("changes", "tells"), [(["cpu.sockets"], True), ([], False)])
def test_edit_beyond_max_sockets_names_the_limit(changes: list[str], *, tells: bool) -> None:
    vm = _vm(domain={"liveChanges": changes})
    (warning,) = VirtualMachineStrategy().warnings_on_update(_edited(vm, domain={"cpu": {"sockets": 3}, **vm["spec"]["domain"]}), vm)
    assert warning.endswith("; live, sockets go up to maxSockets (1)") == tells
    assert warning.startswith("spec.domain.cpu: ")
    other = VirtualMachineStrategy().warnings_on_update(_edited(vm, domain={"cpu": {"cores": 3}, **vm["spec"]["domain"]}), vm)
    assert "maxSockets" not in other[0]


def test_smaller_size_of_a_disk_warns_that_it_stays() -> None:
    def sized(size: str, claim: str = "c") -> dict[str, Any]:
        return {"devices": {"disks": [{"name": "d", "type": "PersistentVolumeClaim", "source": {"name": claim, "create": {"size": size}}}]}}

    vm = _vm(domain={"liveChanges": ["disk.size"]})
    vm["spec"]["domain"] = sized("9Gi")
    warnings = VirtualMachineStrategy().warnings_on_update
    assert warnings(_edited(vm, domain=sized("2Gi")), vm) == (
        "spec.domain.devices.disks[d].source.create.size: an existing disk never shrinks: it keeps 9Gi",
    )
    assert warnings(_edited(vm, domain=sized("11Gi")), vm) == ()
    assert not any("shrinks" in each for each in warnings(_edited(vm, domain=sized("2Gi", "other")), vm))


@pytest.mark.parametrize("has_status", [False, True])
def test_running_hardware_is_kept_through_edit_and_end(*, has_status: bool) -> None:
    vm = _stored(memory="1Gi")
    bigger = copy.deepcopy(vm)
    bigger["spec"]["domain"]["memory"]["guest"] = "2Gi"
    del bigger["status"]
    if has_status:
        bigger["status"] = {"phase": "Stopped", "running": {"domain": {}}}
    edited = _updated(bigger, vm)
    assert edited["metadata"]["generation"] == 2
    assert edited["status"]["running"] == {"generation": 1, "domain": vm["spec"]["domain"]}
    again = _updated(copy.deepcopy(edited), edited)
    assert again == edited
    report = copy.deepcopy(edited)
    report["status"] = {**vm["status"], "observedGeneration": 2, **({"running": {"generation": 2}} if has_status else {})}
    told = _updated(report, edited, "status")
    assert told["status"] == {**vm["status"], "observedGeneration": 2, "running": edited["status"]["running"]}
    end = copy.deepcopy(told)
    end["status"]["phase"] = "Stopped"
    assert "running" not in _updated(end, told, "status")["status"]


def test_verb_with_an_admitted_edit_keeps_the_running_form() -> None:
    """A mutating webhook may edit the spec: the locks stay those of the guest."""
    vm = _stored(memory="1Gi")
    paused = _call("pause", vm)
    paused["spec"]["domain"]["memory"]["guest"] = "2Gi"
    acted = Planner(VirtualMachineStrategy()).act(HubObject(paused), HubObject(vm)).obj
    assert acted["status"]["running"] == {"generation": 1, "domain": vm["spec"]["domain"]}
    assert acted["status"]["pause"]["wanted"] is True


def test_edit_before_the_assignment_makes_no_copy_and_conflicts() -> None:
    vm = _stored(memory="1Gi")
    vm["status"]["phase"] = "Scheduling"
    bigger = copy.deepcopy(vm)
    bigger["spec"]["domain"]["memory"]["guest"] = "2Gi"
    edited = _updated(bigger, vm)
    assert "running" not in edited["status"]
    edited["metadata"]["resourceVersion"] = "8"
    assigned = copy.deepcopy(vm)
    assigned["status"]["phase"] = "Scheduled"
    with pytest.raises(errors.Conflict):
        _updated(assigned, edited, "status")


def test_stale_status_keeps_the_running_hardware() -> None:
    vm = _stored(memory="1Gi")
    bigger = copy.deepcopy(vm)
    bigger["spec"]["domain"]["memory"]["guest"] = "2Gi"
    edited = _updated(bigger, vm)
    edited["metadata"]["resourceVersion"] = "8"
    moved = copy.deepcopy(vm)
    moved["status"] |= {"nodeName": "node2", "podName": "target"}
    moved["metadata"]["resourceVersion"] = "8"
    taken = _updated(moved, edited, "status")
    assert taken["status"]["nodeName"] == "node2"
    assert taken["status"]["running"] == edited["status"]["running"]
    stale = copy.deepcopy(vm)
    with pytest.raises(errors.Conflict):
        _updated(stale, edited, "status")


def _updated(wanted: dict[str, Any], old: dict[str, Any], part: Part = "") -> dict[str, Any]:
    return Planner(VirtualMachineStrategy()).update(HubObject(wanted), HubObject(old), part).obj


def _stored(memory: str) -> dict[str, Any]:
    vm = _vm(nodeName="node1")
    vm["metadata"] |= {"generation": 1, "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z"}
    vm["spec"]["domain"]["memory"] = {"guest": memory}
    VirtualMachineStrategy().default(vm)
    return vm


@pytest.mark.parametrize("phase", ["", *phases.VM_PHASES])
def test_label_edit_warns_that_the_pod_keeps_its_labels(phase: str) -> None:
    old, strategy = _vm(phase), VirtualMachineStrategy()
    new = {**old, "metadata": {**old["metadata"], "labels": {"app": "web"}}}
    text = (
        'metadata.labels: the present pod of virtual machine "vm1" keeps its labels, which Services select; '
        "the change takes effect at its next start or migration"
    )
    told = (text,) if phase in {"Scheduled", "Running", "Stopping", "Unknown"} else ()
    assert strategy.warnings_on_update(new, old) == strategy.warnings_on_update(old, new) == told
    assert strategy.warnings_on_update({**new, "metadata": {**new["metadata"], "annotations": {"a": "b"}}}, new) == ()
    assert strategy.warnings_on_update({**old, "metadata": {**old["metadata"], "labels": {}}}, old) == ()
    both = strategy.warnings_on_update({**new, "spec": {**new["spec"], "nodeSelector": {"a": "b"}}}, old)
    assert [each.partition(":")[0] for each in both] == (["spec.nodeSelector", "metadata.labels"] if told else [])


@pytest.mark.parametrize("phase", ["", *phases.VM_PHASES])
def test_shorter_grace_period_on_delete_warns(phase: str) -> None:
    vm, strategy = _vm(phase), VirtualMachineStrategy()
    vm["spec"]["terminationGracePeriodSeconds"] = 900
    has_guest = phase in {"Scheduled", "Running", "Stopping", "Unknown"}
    for given in (0, 1, 899):
        told = strategy.warnings_on_delete(vm, given)
        assert [each.partition(" of ")[0] for each in told] == (["gracePeriodSeconds: the guest"] if has_guest else [])
        assert all(
            ("has 900 s to shut down; to shorten this, also during the deletion, edit spec.terminationGracePeriodSeconds") in each
            for each in told
        )
    assert strategy.warnings_on_delete(vm, None) == strategy.warnings_on_delete(vm, 900) == ()


@pytest.mark.parametrize(
    ("conditions", "warnings"),
    [
        (None, ()),
        ([{"type": "Paused", "status": "False", "message": ""}], ()),
        ([{"type": "Paused", "status": "True"}], ('virtual machine "vm1" is paused',)),
        (
            [{"type": "Ready", "status": "False"}, {"type": "Paused", "status": "True", "message": "a disk failed"}],
            ('virtual machine "vm1" is paused: a disk failed',),
        ),
        ([{"type": "Paused", "status": "True", "message": "paused on request"}], ('virtual machine "vm1" is paused on request',)),
    ],
    ids=["never looked at", "goes on", "paused", "told why", "by somebody"],
)
def test_connecting_to_a_paused_machine_warns(conditions: Any, warnings: tuple[str, ...]) -> None:
    assert streams.warnings(_vm(conditions=conditions)) == warnings


@pytest.mark.parametrize(
    ("vm", "stream", "reason"),
    [
        (_vm(), "console", None),
        (_vm("Stopping"), "vnc", None),
        (_off(), "console", f"it is not running (phase Succeeded); {START}"),
        (
            {**_vm(), "spec": {"domain": {"devices": {"consoles": []}}}},
            "console",
            "it has no serial port (spec.domain.devices.consoles is empty)",
        ),
        (
            {**_vm(), "spec": {"domain": {"devices": {"graphics": [{"type": "spice"}]}}}},
            "vnc",
            "it has no display of type vnc (spec.domain.devices.graphics)",
        ),
        (_vm(), "spice", "it has no display of type spice (spec.domain.devices.graphics)"),
        ({**_vm(), "spec": {"domain": {"devices": {"graphics": [{"type": "spice"}]}}}}, "spice", None),
        (_vm(nodeName=""), "vnc", "its node is not known"),
        (_vm(), "usbredir", "it has no slots for USB devices of clients (set spec.domain.devices.redirectedDevices)"),
        ({**_vm(), "spec": {"domain": {"devices": {"redirectedDevices": {}}}}}, "usbredir", None),
    ],
)
def test_streams_connect_to_devices_of_running_machines_only(vm: dict[str, Any], stream: Any, reason: str | None) -> None:
    assert streams.refuse(vm, stream) == reason
    if reason is not None:
        with pytest.raises(errors.BadRequest) as caught:
            streams.check(vm, stream)
        assert caught.value.message == f'cannot connect to {stream} of virtual machine "vm1": {reason}'


def _revoked(*, is_read: bool = True) -> RevokedNodes:
    config = Informer(Client(Config("http://127.0.0.1:1"), user_agent="test"), CONFIG_MAPS)
    if is_read:
        config.synced.set()
    return RevokedNodes(config)


async def test_a_stream_leads_to_the_handler_of_the_machines_node() -> None:
    async def locate(node: str) -> tuple[str, int]:
        assert node == "node1"
        return "fd00::1", 8444

    context: Any = object()
    revoked = _revoked()
    destination = await streams.HandlerStream("console", locate, lambda: context, revoked).locate(_vm(), {})
    assert destination.url == "https://[fd00::1]:8444/v1/namespaces/acc/virtualmachines/vm1/u1/console"
    assert destination.server_name == "node1.virt-handler"
    assert destination.tls is context


async def test_console_port_selects_an_existing_stream() -> None:
    async def locate(node: str) -> tuple[str, int]:
        return node, 8444

    context: Any = object()
    console, vnc = (streams.HandlerStream(each, locate, lambda: context, _revoked()) for each in ("console", "vnc"))
    vm = _vm()
    vm["spec"]["domain"] = {"devices": {"consoles": [{"type": "pty"}, {"type": "pty"}]}}
    assert (await console.locate(vm, {"port": "1"})).url.endswith("/console1")
    assert (await console.locate(vm, {"port": "0"})).url.endswith("/console")
    assert (await vnc.locate(vm, {"port": "x"})).url.endswith("/vnc")
    with pytest.raises(
        errors.BadRequest, match=r"it has no serial port 2: they are counted from 0, and spec\.domain\.devices\.consoles has 2"
    ):
        await console.locate(vm, {"port": "2"})
    for wrong in ("", "-1", "x", "10", "\u0661", "../vnc"):
        with pytest.raises(errors.BadRequest, match="port must be the number of a serial port from 0 to 3"):
            await console.locate(vm, {"port": wrong})


@pytest.mark.parametrize("phase", phases.VM_PHASES)
def test_a_stream_is_over_once_no_guest_can_be_left(phase: str) -> None:
    async def locate(node: str) -> tuple[str, int]:
        return node, 8444

    context: Any = object()
    stream = streams.HandlerStream("console", locate, lambda: context, _revoked())
    assert stream.over(_vm(phase=phase)) == ("" if phase in phases.WITH_GUEST else "the guest is off")


async def test_a_usb_device_gets_the_slot_that_was_asked_for_or_any() -> None:
    async def locate(node: str) -> tuple[str, int]:
        return node, 8444

    context: Any = object()
    stream = streams.HandlerStream("usbredir", locate, lambda: context, _revoked())
    vm = _vm()
    vm["spec"]["domain"] = {"devices": {"redirectedDevices": {"slots": 2}}}
    assert (await stream.locate(vm, {"port": "9"})).url.endswith("/usbredir")
    assert (await stream.locate(vm, {"slot": "0"})).url.endswith("/usbredir0")
    assert (await stream.locate(vm, {"slot": "1"})).url.endswith("/usbredir1")
    with pytest.raises(errors.BadRequest, match=r"it has no slot 2: .*, and spec\.domain\.devices\.redirectedDevices\.slots is 2"):
        await stream.locate(vm, {"slot": "2"})
    for wrong in ("", "-1", "x", "10", "\u0661", "../vnc"):
        with pytest.raises(errors.BadRequest, match="slot must be the number of a slot, from 0 to 3"):
            await stream.locate(vm, {"slot": wrong})


@pytest.mark.parametrize(
    ("query", "stream"),
    [({"port": "22"}, "portforward-tcp-22"), ({"port": "53", "protocol": "udp"}, "portforward-udp-53")],
)
async def test_port_and_protocol_select_a_port_of_the_guest(query: dict[str, str], stream: str) -> None:
    async def locate(node: str) -> tuple[str, int]:
        return node, 8444

    context: Any = object()
    forward = streams.HandlerStream("portforward", locate, lambda: context, _revoked())
    assert (await forward.locate(_vm(), query)).url.endswith(f"/u1/{stream}")
    assert [each.name for each in forward.segments] == ["port", "protocol"]
    for wrong in ({"port": "0"}, {"port": "22x"}, {"port": "22", "protocol": "sctp"}, {"port": "22", "protocol": "TCP"}):
        with pytest.raises(errors.BadRequest, match=r"port must be a port of the guest, from 1 to 65535|protocol must be tcp or udp"):
            await forward.locate(_vm(), wrong)


@pytest.mark.parametrize(
    ("interfaces", "why"),
    [
        ([], "it has no interface on the pod's network"),
        ([{"name": "lan", "network": "lan"}], "it has no interface on the pod's network"),
        ([{"name": "lan", "network": "lan"}, {"name": "own"}], None),
        ([{"name": "own", "type": "bridge"}], None),
        ([{"name": "own", "type": "passt", "ports": [{"port": 22}]}], None),
        ([{"name": "own", "state": "down"}], "its interface own is down"),
        (
            [{"name": "own", "ports": [{"port": 80}, {"port": 22, "protocol": "UDP"}]}],
            "its interface own does not list TCP port 22 in ports",
        ),
    ],
)
def test_port_is_reachable_on_the_pods_network(interfaces: list[dict[str, Any]], why: str | None) -> None:
    vm = _vm()
    vm["spec"]["domain"] = {"devices": {"interfaces": interfaces}}
    found = streams.unreachable(vm, Forward("tcp", 22))
    assert found == why or (why and found and found.startswith(why))
    assert streams.unreachable(_vm("Stopped"), Forward("tcp", 22)) == f"it is not running (phase Stopped); {WAIT}"


async def test_revoked_node_gets_no_streams_even_without_config_map() -> None:
    async def locate(node: str) -> tuple[str, int]:
        raise AssertionError(node)

    context: Any = object()
    revoked = _revoked()
    stream = streams.HandlerStream("console", locate, lambda: context, revoked)
    for config_map in ({"data": {"revoked.node1": "stolen"}}, None):
        revoked._changed(config_map)
        with pytest.raises(errors.ServiceUnavailable, match='node "node1" is revoked'):
            await stream.locate(_vm(), {})


async def test_unknown_revocations_trust_no_node() -> None:
    async def locate(node: str) -> tuple[str, int]:
        raise AssertionError(node)

    context: Any = object()
    revoked = _revoked(is_read=False)
    with pytest.raises(errors.ServiceUnavailable, match='which lists revoked nodes such as possibly "node1"'):
        await streams.HandlerStream("console", locate, lambda: context, revoked).locate(_vm(), {})

    def addresses(_: str) -> list[str]:
        return []

    restriction = NodeRestriction("handler", required=True, addresses=addresses, now=lambda: NOW, revoked=revoked.is_revoked)
    user = User("handler", extra={"authentication.kubernetes.io/node-name": ("node1",)})
    vm = _vm()
    with pytest.raises(errors.ServiceUnavailable, match="has not read ConfigMap"):
        await restriction.validate(asking("UPDATE", VIRTUAL_MACHINES, "status", "acc", "vm1", user, vm, vm))


def test_every_stream_but_the_log_counts_as_interactive() -> None:
    context: Any = None
    for stream in get_args(Stream):
        assert streams.HandlerStream(stream, context, context, context).interactive == (stream != "log")


async def test_log_of_a_port_is_followed_if_asked() -> None:
    async def locate(node: str) -> tuple[str, int]:
        return node, 8444

    context: Any = object()
    log = streams.HandlerStream("log", locate, lambda: context, _revoked())
    assert (await log.locate(_vm(), {})).url.endswith("/u1/log0")
    assert (await log.locate(_vm(), {"port": "0", "follow": "true"})).url.endswith("/u1/log0-follow")
    with pytest.raises(errors.BadRequest, match="it has no serial port 1"):
        await log.locate(_vm(), {"port": "1"})
    with pytest.raises(errors.BadRequest, match="follow must be true or false"):
        await log.locate(_vm(), {"follow": "1"})


def test_the_plugin_knows_the_close_codes_of_the_server() -> None:
    assert (CLOSE_GOING_AWAY, CLOSE_POLICY_VIOLATION) == (upgrade.GOING_AWAY, upgrade.POLICY_VIOLATION)


def test_discovery_lists_resources_before_subresources() -> None:
    served = (VirtualMachineStrategy(), MigrationStrategy(), ReplicaSetStrategy())
    listed = discovery.api_resource_list(served, "kubevirt.io", "v1alpha1")["resources"]
    first = {each["kind"]: each["name"] for each in reversed(listed)}
    assert first["VirtualMachine"] == "virtualmachines"
    assert "virtualmachinereplicasets/replicate" in [each["name"] for each in listed if each["kind"] == "VirtualMachine"]


def test_request_says_that_memory_goes_to_the_nodes_disk() -> None:
    """A running guest needs no restart for that, and a later edit changes nothing."""
    (operation,) = _call("suspend", _on_node_disk(_vm(running={"domain": {}})))["status"]["operations"]
    assert (operation["action"], operation["parameters"]) == ("Suspend", {"nodeDisk": True})
    (operation,) = _call("suspend", _with_claim(_vm()))["status"]["operations"]
    assert "parameters" not in operation


def test_any_image_on_a_nodes_disk_can_be_discarded() -> None:
    vm = _suspended()
    vm["status"]["managedSave"] = {each: IMAGE[each] for each in IMAGE if each != "claimName"}
    assert "managedSave" not in _discarding(vm)["status"]
