"""Verbs with options: what they write, and what they refuse. The others: test_strategies."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import Any

import pytest

from apiserver.apis.meta import errors
from apiserver.apis.virt.lifecycle import power
from apiserver.registry.generic.strategy import Verb
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
@pytest.mark.parametrize("name", ["softreboot", "nmi", "sendkey"])
def test_a_paused_guest_gets_no_signal(name: str, status: dict[str, Any]) -> None:
    body = {"keys": ["KEY_A"]} if name == "sendkey" else {}
    assert refusal(name, a_vm(**status), **body) == "the guest is paused, and would not notice; unpause it first"
    assert "only a running virtual machine can" in refusal(name, a_vm("Stopped"), **body)


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
    assert refusal("poweroff", ended) == "the virtual machine is already off"
    assert refusal("poweroff", a_vm("Stopped", deleting=True)) == "the virtual machine is being deleted"
