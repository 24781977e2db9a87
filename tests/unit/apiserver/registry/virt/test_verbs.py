from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import Any

import pytest

from apiserver.apis.meta import errors
from apiserver.apis.virt.lifecycle import power
from apiserver.registry.generic.strategy import CreatingVerb, DeletingVerb, Verb
from apiserver.registry.virt import verbs

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
MOMENT = "2026-01-02T03:04:05.000000Z"
STOPPING = {"action": "Stop", "runStrategy": "RerunOnFailure", "attempt": 1}


def a_vm(phase: str = "Running", *, deleting: bool = False, grace: int | None = 30, **status: Any) -> dict[str, Any]:
    metadata = {"name": "vm1", "namespace": "ns", **({"deletionTimestamp": MOMENT} if deleting else {})}
    spec = {"runStrategy": "RerunOnFailure", "terminationGracePeriodSeconds": grace}
    return {"metadata": metadata, "spec": spec, "status": {"phase": phase, "attempt": 1, "attempts": [{"number": 1}], **status}}


def call(name: str, vm: dict[str, Any], **body: Any) -> dict[str, Any]:
    verb = verbs.VERBS[name]
    assert isinstance(verb, Verb)
    return verb.apply(copy.deepcopy(vm), body, NOW)


def refusal(name: str, vm: dict[str, Any], **body: Any) -> str:
    with pytest.raises(errors.Conflict) as caught:
        call(name, vm, **body)
    return caught.value.message.split('"vm1": ')[1]


def wrong_fields(name: str, vm: dict[str, Any], **body: Any) -> list[str]:
    with pytest.raises(errors.Invalid) as caught:
        call(name, vm, **body)
    return [each["field"] for each in caught.value.to_json()["details"]["causes"]]


@pytest.mark.parametrize(
    ("name", "body", "expected"),
    [
        ("reset", {}, {"action": "Reset"}),
        ("softreboot", {}, {"action": "SoftReboot"}),
        ("nmi", {}, {"action": "InjectNMI"}),
        ("sendkey", {"keys": ["KEY_A", "30"]}, {"action": "SendKey", "parameters": {"keys": ["KEY_A", "30"], "holdMilliseconds": 100}}),
        (
            "sendkey",
            {"keys": ["KEY_A"], "holdMilliseconds": 1},
            {"action": "SendKey", "parameters": {"keys": ["KEY_A"], "holdMilliseconds": 1}},
        ),
        ("freeze", {}, {"action": "Freeze", "parameters": {"unfreezeTimeoutSeconds": 300}}),
        ("freeze", {"unfreezeTimeoutSeconds": 1}, {"action": "Freeze", "parameters": {"unfreezeTimeoutSeconds": 1}}),
    ],
)
def test_an_operation_has_its_parameters_and_is_added_once(name: str, body: dict[str, Any], expected: dict[str, Any]) -> None:
    once = call(name, a_vm(), id="op", **body)
    assert once["status"]["operations"] == [{"id": "op", "number": 1, "attempt": 1, "time": MOMENT, **expected}]
    assert call(name, once, id="op", **body) == once


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "keys"),
        ({"keys": []}, "keys"),
        ({"keys": "KEY_A"}, "keys"),
        ({"keys": [30]}, "keys"),
        ({"keys": ["KEY_A"] * 17}, "keys"),
        ({"keys": ["KEY_A", "A"]}, "keys[1]"),
        ({"keys": ["0"]}, "keys[0]"),
        ({"keys": ["768"]}, "keys[0]"),
        ({"keys": ["٣"]}, "keys[0]"),
        ({"keys": ["KEY_A"], "holdMilliseconds": 0}, "holdMilliseconds"),
        ({"keys": ["KEY_A"], "holdMilliseconds": 10_001}, "holdMilliseconds"),
        ({"keys": ["KEY_A"], "holdMilliseconds": True}, "holdMilliseconds"),
        ({"keys": ["KEY_A"], "node": "a"}, "node"),
    ],
)
def test_keys_are_named_known_and_bounded(body: dict[str, Any], field: str) -> None:
    assert wrong_fields("sendkey", a_vm(), **body) == [field]


@pytest.mark.parametrize("status", [{"pause": {"wanted": True, "attempt": 1}}, {"conditions": [{"type": "Paused", "status": "True"}]}])
@pytest.mark.parametrize("name", ["softreboot", "nmi", "sendkey", "freeze", "thaw"])
def test_a_paused_guest_gets_no_signal(name: str, status: dict[str, Any]) -> None:
    body = {"keys": ["KEY_A"]} if name == "sendkey" else {}
    assert refusal(name, a_vm(**status), **body) == "the guest is paused; unpause it first: kubectl virt unpause vm1"


@pytest.mark.parametrize(
    ("name", "refused", "body"),
    [
        ("softreboot", "reboot", {}),
        ("nmi", "inject an NMI into", {}),
        ("sendkey", "send keys to", {"keys": ["KEY_A"]}),
        ("freeze", "freeze", {}),
        ("thaw", "thaw", {}),
    ],
)
def test_a_machine_that_is_off_gets_no_signal(name: str, refused: str, body: dict[str, Any]) -> None:
    assert (
        refusal(name, a_vm("Stopped", request=STOPPING), **body)
        == f"cannot {refused} a virtual machine that is not running (Stopped); to start it: kubectl virt start vm1"
    )


@pytest.mark.parametrize("name", ["freeze", "softreboot", "suspend", "migrate"])
def test_frozen_file_systems_refuse_what_would_lose_their_thaw(name: str) -> None:
    verb = verbs.VERBS[name]
    assert isinstance(verb, Verb | CreatingVerb)
    act = verb.make if isinstance(verb, CreatingVerb) else verb.apply
    with pytest.raises(errors.Conflict, match="the guest's file systems are frozen; thaw them first"):
        act(a_vm(fsFreezeStatus="frozen"), {}, NOW)


def test_thaw_requires_a_freeze_that_is_over_or_running() -> None:
    assert refusal("thaw", a_vm()) == "the guest's file systems are not frozen"
    assert call("thaw", a_vm(fsFreezeStatus="frozen"), id="t")["status"]["operations"][0]["action"] == "Thaw"
    freezing = call("freeze", a_vm(), id="f")
    assert [each["action"] for each in call("thaw", freezing, id="t")["status"]["operations"]] == ["Freeze", "Thaw"]


@pytest.mark.parametrize("seconds", [0, 3601, "5m", True])
def test_the_time_of_a_freeze_is_limited(seconds: object) -> None:
    assert wrong_fields("freeze", a_vm(), unfreezeTimeoutSeconds=seconds) == ["unfreezeTimeoutSeconds"]


def test_sendkey_is_refused_by_a_machine_that_is_being_deleted() -> None:
    assert refusal("sendkey", a_vm(deleting=True), keys=["KEY_A"]) == "the virtual machine is being deleted"


def test_stop_has_a_grace_period_and_poweroff_has_none() -> None:
    assert call("stop", a_vm())["status"]["request"] == {**STOPPING, "time": MOMENT, "generation": 0}
    stopped = call("stop", a_vm(), gracePeriodSeconds=5)
    assert stopped["status"]["request"] == {**STOPPING, "time": MOMENT, "generation": 0, "gracePeriodSeconds": 5}
    assert call("poweroff", a_vm())["status"]["request"]["gracePeriodSeconds"] == 0
    assert (power.grace_seconds(call("stop", a_vm())), power.grace_seconds(stopped)) == (30, 5)


@pytest.mark.parametrize("grace", [-1, 31, "5", True, 1.5])
def test_a_grace_period_is_a_number_within_the_specs(grace: Any) -> None:
    assert wrong_fields("stop", a_vm(), gracePeriodSeconds=grace) == ["gracePeriodSeconds"]


def test_poweroff_takes_no_options() -> None:
    assert wrong_fields("poweroff", a_vm(), gracePeriodSeconds=1) == ["gracePeriodSeconds"]


@pytest.mark.parametrize("vm", [a_vm("Running", deleting=True), a_vm("Stopping", request=STOPPING), a_vm("Stopping", deleting=True)])
def test_a_guest_that_shuts_down_takes_only_less_time(vm: dict[str, Any]) -> None:
    shorter = call("stop", vm, gracePeriodSeconds=5)
    assert power.grace_seconds(shorter) == 5
    assert refusal("stop", vm, gracePeriodSeconds=30)
    assert refusal("stop", shorter, gracePeriodSeconds=5)
    off = call("poweroff", shorter)
    assert power.grace_seconds(off) == 0
    assert refusal("poweroff", off)


def test_a_machine_without_a_guest_is_not_powered_off() -> None:
    ended = a_vm("Stopped", attempts=[{"number": 1, "result": "Stopped"}], request=STOPPING)
    assert refusal("poweroff", ended) == "the virtual machine is already off (Stopped)"
    assert refusal("poweroff", a_vm("Stopped", deleting=True)) == "the virtual machine is being deleted"


OFF = a_vm("Stopped", attempts=[{"number": 1, "result": "Stopped"}], request=STOPPING)


@pytest.mark.parametrize(
    ("name", "vm"),
    [
        ("start", OFF),
        ("stop", a_vm()),
        ("poweroff", a_vm()),
        ("restart", a_vm()),
        ("pause", a_vm()),
        ("unpause", a_vm(pause={"wanted": True, "attempt": 1})),
    ],
)
def test_a_repeated_call_with_one_id_has_no_effect(name: str, vm: dict[str, Any]) -> None:
    once = call(name, vm, id="mine")
    assert once["status"]["calls"] == [{"id": "mine", "verb": name}]
    assert call(name, once, id="mine") == once
    other = "stop" if name != "stop" else "start"
    assert refusal(other, once, id="mine") == f"the id mine is that of another call: {name}"
    assert refusal("reset", {**once, "status": {**a_vm()["status"], **once["status"]}}, id="mine")
    ended = {**once, "status": {**OFF["status"], "calls": once["status"]["calls"]}}
    assert call(name, ended, id="mine") == ended, "also when later verbs changed the level"


def test_the_last_ten_calls_with_an_id_are_listed() -> None:
    vm = a_vm()
    for number in range(12):
        vm = call("pause", {**vm, "status": {**vm["status"], "pause": {"wanted": False}}}, id=f"c{number}")
    assert [each["id"] for each in vm["status"]["calls"]] == [f"c{number}" for number in range(2, 12)]
    assert "calls" not in call("pause", a_vm())["status"]
    with pytest.raises(errors.Conflict, match="the id c2 is that of another call: pause"):
        call("reset", vm, id="c2")


def test_a_start_is_paused_and_placed_for_one_attempt() -> None:
    started = call("start", OFF, paused=True, nodeSelector={"kubernetes.io/hostname": "b"})
    assert not power.wants_paused(started)
    assert power.node_selector(started, 1) == {}
    running = {**started, "status": {**started["status"], "attempt": 2, "attempts": [{"number": 2}]}}
    assert power.wants_paused(running)
    assert power.node_selector(running, 2) == {"kubernetes.io/hostname": "b"}
    assert power.node_selector(running, 3) == {}
    plain = call("start", OFF)
    assert "nodeSelector" not in plain["status"]["request"]
    assert "pause" not in plain["status"]


def test_a_start_cannot_choose_the_node_that_the_spec_fixes() -> None:
    fixed = copy.deepcopy(OFF)
    fixed["spec"]["nodeName"] = "a"
    assert "spec.nodeName" in refusal("start", fixed, nodeSelector={"kubernetes.io/hostname": "b"})
    assert wrong_fields("start", OFF, paused="yes", nodeSelector={"x y": "b"}) == ["nodeSelector", "paused"]


def migration(name: str, phase: Any = "Running", **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"selector": {"name": "vm1"}}, "status": {"phase": phase, **status}}


RELEASED = {"conditions": [{"type": "Released", "status": "True"}]}


def chosen(verb: DeletingVerb, body: dict[str, Any], found: list[dict[str, Any]]) -> str:
    try:
        return str(verb.choose(a_vm(), body, found)["metadata"]["name"])
    except errors.Conflict as refused:
        return refused.message.split('"vm1": ')[1]


@pytest.mark.parametrize(
    ("found", "body", "expected"),
    [
        ([], {}, "it is not being migrated"),
        ([migration("m1", "Succeeded")], {}, "it is not being migrated"),
        ([migration("m1", "Failed"), migration("m2")], {}, "m2"),
        ([migration("m2")], {"migration": "m2"}, "m2"),
        ([migration("m2")], {"migration": "m1"}, "it is not being migrated by m1"),
        ([migration("m2", **RELEASED)], {}, "cannot cancel migration m2: the guest has already moved; m2 will be Succeeded soon"),
    ],
)
def test_the_unfinished_migration_is_cancelled(found: list[dict[str, Any]], body: dict[str, Any], expected: str) -> None:
    verb = verbs.VERBS["cancelmigration"]
    assert isinstance(verb, DeletingVerb)
    assert verb.candidates(a_vm()) == "spec.selector.name=vm1"
    assert chosen(verb, body, found) == expected


def test_a_migration_is_named_by_the_id_of_its_call() -> None:
    verb = verbs.VERBS["migrate"]
    assert isinstance(verb, CreatingVerb)
    assert verb.name_for_id(a_vm(), {}) == ""
    assert verb.name_for_id(a_vm(), {"id": "My-1"}) == "vm1-my-1"
    assert verb.make(a_vm(), {"id": "My-1"}, NOW)["metadata"] == {"name": "vm1-my-1", "namespace": "ns"}
    assert verb.is_of(a_vm(), migration("vm1-my-1"))
    assert not verb.is_of({"metadata": {"name": "vm1-my"}}, migration("vm1-my-1"))
