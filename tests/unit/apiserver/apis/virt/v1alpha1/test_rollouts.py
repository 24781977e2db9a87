from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from apiserver.apis.meta import decoding, errors
from apiserver.apis.meta.objects import HubObject, Object
from apiserver.apis.virt import structure
from apiserver.apis.virt.lifecycle import power, revisions
from apiserver.apis.virt.lifecycle.replica_sets import ROLLOUT
from apiserver.apis.virt.v1alpha1.replica_set import VirtualMachineReplicaSet
from apiserver.registry.generic.planning import Planner
from apiserver.registry.generic.strategy import UpdatingVerb
from apiserver.registry.virt.replica_sets import ReplicaSetStrategy
from apiserver.registry.virt.virtualmachines import VirtualMachineStrategy
from tests.unit.apiserver.apis.virt.v1alpha1.test_replica_set import DOMAIN, LABELS, NOW, a_set, faults, read, replicate

STRATEGY = ReplicaSetStrategy()
MAX_UNAVAILABLE = "spec.updateStrategy.rollingUpdate.maxUnavailable"


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ({"ordinals": {}, "updateStrategy": {"type": "OnDelete"}, "revisionHistoryLimit": 0}, []),
        ({"ordinals": {}, "updateStrategy": {"rollingUpdate": {"maxUnavailable": 1, "partition": 0}}}, []),
        ({"updateStrategy": {}}, ["spec.updateStrategy"]),
        ({"revisionHistoryLimit": 1}, ["spec.revisionHistoryLimit"]),
        ({"ordinals": {}, "revisionHistoryLimit": 101}, ["spec.revisionHistoryLimit"]),
        (
            {"ordinals": {}, "updateStrategy": {"type": "OnDelete", "rollingUpdate": {"maxUnavailable": 0, "partition": -1}}},
            [
                MAX_UNAVAILABLE,
                "spec.updateStrategy.rollingUpdate.partition",
                "spec.updateStrategy.rollingUpdate",
            ],
        ),
    ],
)
def test_update_strategy(spec: Object, wanted: list[str]) -> None:
    assert [each.partition(": ")[0] for each in faults(a_set(**spec))] == wanted


def unavailable(value: Any) -> Object:
    return a_set(ordinals={}, updateStrategy={"rollingUpdate": {"maxUnavailable": value}})


@pytest.mark.parametrize("value", [1, 2**31 - 1, "1%", "05%", "25%", "100%"])
def test_max_unavailable_is_stored_as_sent(value: int | str) -> None:
    made = unavailable(value)
    assert faults(made) == []
    assert read(made)["spec"]["updateStrategy"] == made["spec"]["updateStrategy"]
    assert structure.of_replica_set(read(made)) == ()


NO_PERCENTAGE = ("", "%", "5", "0%", "00%", "101%", "1000%", "-5%", "+5%", "5.5%", "1e9%", "٣%", "5 %", " 5%", "5%\n", "5%%", "\ud800%")


@pytest.mark.parametrize("value", [*NO_PERCENTAGE, "9" * 5000 + "%"], ids=ascii)
def test_max_unavailable_as_text_must_be_a_percentage(value: str) -> None:
    (fault,) = faults(unavailable(value))
    assert fault.startswith(f"{MAX_UNAVAILABLE}: Invalid value: ")
    assert fault.endswith(": must be an integer, or a percentage from 1% to 100% such as 25%")


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (True, "must be an integer or a string"),
        (1.0, "must be an integer or a string"),
        (1e9, "must be an integer or a string"),
        ([], "must be an integer or a string"),
        ({"percent": 5}, "must be an integer or a string"),
        (2**31, "must be an integer of 32 bits"),
        (-(2**31) - 1, "must be an integer of 32 bits"),
        (10**40, "must be an integer of 32 bits"),
    ],
    ids=str,
)
def test_max_unavailable_of_another_type_is_refused(value: Any, fault: str) -> None:
    unknown, (found,) = decoding.read(VirtualMachineReplicaSet, unavailable(value))
    assert (unknown, found.path, found.detail) == ((), MAX_UNAVAILABLE, fault)


@pytest.mark.parametrize(
    ("value", "replicas", "most"),
    [
        (None, 9, 1),
        (3, 2, 3),
        ("25%", None, 1),
        ("25%", 0, 1),
        ("25%", 3, 1),
        ("25%", 7, 1),
        ("25%", 8, 2),
        ("99%", 2, 1),
        ("29%", 100, 29),
        ("100%", 5, 5),
        ("100%", 2**31 - 1, 2**31 - 1),
        ("stored by another program", 9, 1),
    ],
)
def test_a_percentage_of_replicas_is_rounded_down_to_at_least_1(value: int | str | None, replicas: int | None, most: int) -> None:
    pool = unavailable(value)
    pool["spec"] |= {} if replicas is None else {"replicas": replicas}
    assert revisions.max_unavailable(pool) == most


def a_pool(**spec: Any) -> Object:
    made = read(a_set(ordinals={}, replicas=3, **spec))
    STRATEGY.prepare_for_create(made)
    return made


def edited(old: Object, annotations: Object, cause: str = "") -> Object:
    new = deepcopy(old)
    new["spec"]["template"]["metadata"]["annotations"] = annotations
    if cause:
        new["metadata"]["annotations"] = {"kubernetes.io/change-cause": cause}
    STRATEGY.prepare_for_update(new, old)
    return new


def numbers(replica_set: Object) -> list[int]:
    return [each["revision"] for each in revisions.of_set(replica_set)]


def test_an_edit_makes_a_revision_and_an_undo_renews_one() -> None:
    pool = a_pool()
    second = edited(pool, {"a": "1"}, "more memory")
    assert revisions.of_set(second)[-1] == {
        "name": revisions.newest(second),
        "revision": 2,
        "template": {**second["spec"]["template"], "metadata": {"labels": LABELS, "annotations": {"a": "1"}}},
        "changeCause": "more memory",
    }
    assert edited(second, {"a": "1"}) == second
    undone = edited(second, {})
    assert (revisions.newest(undone), numbers(undone)) == (revisions.newest(pool), [2, 3])


def test_a_set_with_random_names_has_no_revisions() -> None:
    made = read(a_set())
    STRATEGY.prepare_for_create(made)
    STRATEGY.prepare_for_update(made, made)
    assert made["status"] == {"observedGeneration": 0}


@pytest.mark.parametrize(("limit", "kept"), [(0, [1, 5]), (2, [1, 3, 4, 5]), (None, [1, 2, 3, 4, 5])])
def test_the_history_keeps_the_current_and_the_last_revisions(limit: int | None, kept: list[int]) -> None:
    pool = a_pool(**({} if limit is None else {"revisionHistoryLimit": limit}))
    for number in range(4):
        pool = edited(pool, {"a": str(number)})
    assert numbers(pool) == kept


def test_defaults_of_a_later_release_make_no_revision() -> None:
    pool = a_pool()
    del pool["spec"]["template"]["spec"]["rerun"], pool["status"]["revisions"][0]["template"]["spec"]["rerun"]
    later = read(pool)
    assert later["spec"]["template"]["spec"]["rerun"]
    STRATEGY.prepare_for_update(later, pool)
    assert numbers(later) == [1]


def test_large_templates_are_kept_up_to_a_size() -> None:
    pool = a_pool()
    for number in range(9):
        pool = edited(pool, {"a": str(number) * (100 << 10)})
    assert numbers(pool) == [1, 9, 10]


def test_virt_controller_writes_no_revisions() -> None:
    pool = a_pool()
    for forged in ({}, {"revisions": [{"name": "x", "revision": 9, "template": {"spec": {}}}]}):
        written = {**pool, "status": forged}
        STRATEGY.prepare_for_status_update(written, pool)
        assert written["status"]["revisions"] == pool["status"]["revisions"]


def test_below_the_partition_machines_get_the_current_revision() -> None:
    old = a_pool(updateStrategy={"rollingUpdate": {"partition": 1}})
    new = edited(old, {"a": "1"})
    below, above = replicate(new, {"ordinal": 0})["metadata"], replicate(new, {"ordinal": 1})["metadata"]
    assert (below["labels"], below.get("annotations")) == ({**LABELS, "kubevirt.io/revision": revisions.newest(old)}, None)
    assert (above["labels"], above["annotations"]) == ({**LABELS, "kubevirt.io/revision": revisions.newest(new)}, {"a": "1"})


RUNNING = {"phase": "Running", "attempt": 1, "attempts": [{"number": 1, "podName": "p"}]}


def roll_out(pool: Object, machine: Object, **body: Any) -> Object:
    verb = STRATEGY.verbs[ROLLOUT]
    assert isinstance(verb, UpdatingVerb)
    body = {"ordinal": 1, **body}
    assert verb.target(pool, body) == "web-1"
    return verb.change(pool, deepcopy(machine), body, NOW)


def a_machine(pool: Object, status: Object) -> Object:
    machine = replicate(pool, {"ordinal": 1})
    machine["metadata"] |= {"uid": "m", "generation": 1, "annotations": {"mine": "1"}}
    return {**machine, "status": deepcopy(status)}


BERLIN = {"domain": {**DOMAIN, "clock": {"timezone": "Europe/Berlin"}}}


@pytest.mark.parametrize(
    ("spec", "annotations", "status", "restarts"),
    [
        ({}, {"a": "1"}, RUNNING, False),
        (BERLIN, {}, RUNNING, True),
        ({**BERLIN, "runStrategy": "Always"}, {}, RUNNING, True),
        ({**BERLIN, "runStrategy": "Halted"}, {}, RUNNING, False),
        ({"nodeSelector": {"cpu": "fast"}}, {}, RUNNING, False),
        (BERLIN, {}, {"phase": "Stopped"}, False),
        (BERLIN, {}, {}, False),
        ({}, {"kubevirt.io/restartedAt": "now"}, RUNNING, True),
        ({}, {"kubevirt.io/restartedAt": "now"}, {}, False),
    ],
)
def test_a_machine_with_the_template_restarts_only_if_needed(spec: Object, annotations: Object, status: Object, *, restarts: bool) -> None:
    pool = a_pool()
    machine = a_machine(pool, status)
    new = deepcopy(pool)
    new["spec"]["template"]["spec"] |= spec
    new = edited(read(new) | {"status": pool["status"]}, annotations)
    changed = roll_out(new, machine)
    assert changed["spec"] == new["spec"]["template"]["spec"]
    assert changed["metadata"]["labels"] == {**LABELS, "kubevirt.io/revision": revisions.newest(new)}
    assert changed["metadata"]["annotations"] == {"mine": "1", **annotations}
    stored = Planner(VirtualMachineStrategy()).act(HubObject(changed), HubObject(machine)).obj
    assert bool(power.end_asked_for(stored)) is (restarts or spec.get("runStrategy") == "Halted")
    assert (power.decide(stored).attempt == 2) is restarts
    assert roll_out(new, stored).get("status", {}).get("request") == stored.get("status", {}).get("request"), "a repeated call"


def test_a_machine_loses_what_only_its_earlier_template_had() -> None:
    pool = edited(a_pool(), {"a": "1", "b": "2", "kubevirt.io/restartedAt": "then"})
    machine = a_machine(pool, RUNNING)
    machine["metadata"]["annotations"] = {"a": "1", "b": "mine", "c": "mine", "kubevirt.io/restartedAt": "then"}
    changed = roll_out(edited(pool, {}), machine)
    assert changed["metadata"]["annotations"] == {"b": "mine", "c": "mine"}
    assert "request" not in changed["status"], "the undo of a restart restarts nothing"
    assert changed["metadata"]["labels"]["app"] == "web"


@pytest.mark.parametrize("spec", [{"paused": True}, {"updateStrategy": {"type": "OnDelete"}}])
def test_a_set_that_updates_nothing_refuses_the_verb(spec: Object) -> None:
    pool = a_pool(**spec)
    with pytest.raises(errors.Conflict, match="is paused, or its updateStrategy"):
        roll_out(pool, a_machine(pool, {}))


def test_only_machines_of_the_set_are_changed() -> None:
    pool = a_pool()
    machine = a_machine(pool, {})
    refused: list[Object] = [{"ownerReferences": []}, {"deletionTimestamp": "2026-11-29T00:00:00Z"}]
    for metadata in refused:
        with pytest.raises(errors.Conflict, match="does not control it, or it is being deleted"):
            roll_out(pool, {**machine, "metadata": {**machine["metadata"], **metadata}})
    with pytest.raises(errors.BadRequest, match="'spec'"):
        roll_out(pool, machine, spec={})
    with pytest.raises(errors.Conflict, match="without 3"):
        roll_out(pool, machine, ordinal=3)
    with pytest.raises(errors.BadRequest, match=r"requires a set with spec\.ordinals"):
        roll_out(read(a_set()), machine)
