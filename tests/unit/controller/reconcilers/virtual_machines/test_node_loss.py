from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from apiserver.apis.meta import times
from apiserver.apis.meta.objects import condition, name_of, uid_of
from apiserver.apis.virt.lifecycle import node_loss, power
from controller.reconcilers import indexes
from controller.reconcilers.actions import Action, CreatePod, Requeue, WriteStatus
from controller.reconcilers.nodes.node_reports import Unreachable
from controller.reconcilers.pods.liveness import Absent, Evidence
from controller.reconcilers.settings import Restarts, Settings
from controller.reconcilers.virtual_machines import restart_turns
from controller.reconcilers.virtual_machines.observed import Observed
from controller.reconcilers.virtual_machines.restart_turns import Queue, Turn
from controller.reconcilers.virtual_machines.virtual_machine_plan import plan
from tests.unit.controller.reconcilers.builders import a_pod, a_vm, an_attempt

NOW = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
OFF = Unreachable(whole=frozenset({"node1"}), off=frozenset({"node1"}))
LIMITS = Restarts(batch=2, seconds=10.0, settle_seconds=2.0)
SETTINGS = dataclasses.replace(Settings("launcher"), restarts=LIMITS)
START = {"action": "Start", "runStrategy": "RerunOnFailure", "attempt": 2}


def seen(vm: dict[str, Any], *pods: dict[str, Any], **rest: Any) -> Observed:
    return Observed(vm=vm, pods=pods, claims={}, settings=SETTINGS, **{"now": NOW, "rested": 600.0, **rest})


def written(actions: tuple[Action, ...]) -> dict[str, Any]:
    return next(each.status for each in actions if isinstance(each, WriteStatus))


def is_started(actions: tuple[Action, ...]) -> bool:
    return any(isinstance(each, CreatePod) for each in actions)


def lost(name: str = "testvm", *, ago: float = 5.0, status: str = "True", **spec: Any) -> dict[str, Any]:
    """Return a machine with condition NodeLost: ``True`` after its node's loss, else after its restart."""
    vm = a_vm(phase="Failed", attempts=[an_attempt(result="Failed", endTime="2026-01-01T00:00:00Z")], **spec)
    since = times.to_rfc3339(NOW - timedelta(seconds=ago))
    ready = {"type": "Ready", "status": "False", "reason": "AttemptFailed", "lastTransitionTime": since}
    vm["metadata"]["name"] = name
    vm["status"]["conditions"] = [ready, {"type": "NodeLost", "status": status, "reason": "Fenced", "lastTransitionTime": since}]
    return vm


@pytest.mark.parametrize("went", [True, False])
def test_an_attempt_names_the_node_with_which_it_was_lost(went: bool) -> None:
    vm = a_vm(phase="Unknown", attempts=[an_attempt()])
    unreachable = Unreachable(whole=frozenset({"node1"})) if went else OFF
    own = Absent(vm["status"]["podName"], vm["status"]["podUID"], "node1", 0.0, went_with_node=went)
    status = written(plan(seen(vm, evidence=Evidence(unreachable, (own,)))))
    assert (status["phase"], status["attempts"][-1]["message"]) == ("Failed", "node node1 is off, as a person states")
    assert (condition(status["conditions"], "NodeLost") or {})["status"] == "True"


def test_a_fenced_nodes_attempt_ends_before_its_pod_is_gone() -> None:
    vm = a_vm(phase="Unknown", attempts=[an_attempt()])
    pod = a_pod(phase="Running", node="node1")
    status = written(plan(seen(vm, pod, evidence=Evidence(OFF))))
    assert (status["phase"], status["attempts"][-1]["nodeName"]) == ("Failed", "node1")
    assert (condition(status["conditions"], "NodeLost") or {})["reason"] == "Fenced"
    vm["status"] = {**status, "conditions": lost()["status"]["conditions"]}
    assert is_started(plan(seen(vm, pod, evidence=Evidence(OFF))))
    stopped = a_vm(phase="Unknown", attempts=[an_attempt()], runStrategy="Halted")
    ended = written(plan(seen(stopped, pod, evidence=Evidence(OFF))))
    assert (ended["phase"], condition(ended["conditions"], "NodeLost")) == ("Stopped", None), "its owner wants it off"
    deleted = dataclasses.replace(OFF, missing=OFF.off)
    assert not is_started(plan(seen(vm, pod, evidence=Evidence(deleted)))), "Kubernetes deletes the pods of a Node that is gone"


def sealed(*pods: dict[str, Any], **promised: Any) -> Evidence:
    return Evidence(Unreachable(frozenset({"node1"})), (), {"node1": frozenset(map(uid_of, pods))}, **promised)


def test_an_attempt_ends_once_its_guardians_lease_is_sealed() -> None:
    vm, pod = a_vm(phase="Unknown", attempts=[an_attempt()]), a_pod(phase="Running", node="node1")
    status = written(plan(seen(vm, pod, evidence=sealed(pod))))
    message = "node node1 does not report, and its guardian has ended the guest there"
    assert (status["phase"], status["attempts"][-1]["message"]) == ("Failed", message)
    assert (condition(status["conditions"], "NodeLost") or {})["reason"] == node_loss.SEALED
    vm["status"] = {**status, "conditions": lost()["status"]["conditions"]}
    assert is_started(plan(seen(vm, pod, evidence=sealed(pod))))
    assert not is_started(plan(seen(vm, pod, evidence=sealed())))


def test_a_guest_in_migration_needs_evidence_for_both_sides() -> None:
    vm, source = a_vm(phase="Unknown", attempts=[an_attempt()]), a_pod(phase="Running", node="node1")
    target = {**a_pod(7, phase="Running", node="node2")}
    actions = plan(seen(vm, source, target, targets=frozenset({name_of(target)}), evidence=sealed(source)))
    assert not is_started(actions)
    assert not [each for each in actions if isinstance(each, WriteStatus) and each.status.get("phase") in ("Failed", "Stopped")]
    both = Evidence(Unreachable(), (), {"node1": frozenset({uid_of(source)}), "node2": frozenset({uid_of(target)})})
    assert written(plan(seen(vm, source, target, targets=frozenset({name_of(target)}), evidence=both)))["phase"] == "Failed"


@pytest.mark.parametrize(
    ("promised", "words"),
    [
        ({}, "may still run there. If"),
        ({"node1": True}, "restarts elsewhere once its guardian must have ended it"),
        ({"node1": False}, "its guardian was cut off before it could promise to end this pod"),
    ],
)
def test_a_lost_machine_says_what_its_guardian_promised(promised: dict[str, bool], words: str) -> None:
    vm, pod = a_vm(phase="Running", attempts=[an_attempt()]), a_pod(phase="Running", node="node1")
    listed = {node: frozenset({uid_of(pod)} if each else ()) for node, each in promised.items()}
    status = written(plan(seen(vm, pod, evidence=sealed(promised=listed))))
    message = (condition(status["conditions"], "Ready") or {})["message"]
    assert words in message
    assert "kubectl virt fence node1 --off" in message


def test_a_machine_lost_with_a_virtual_node_says_so() -> None:
    vm, pod = a_vm(phase="Running", attempts=[an_attempt()]), a_pod(phase="Running", node="node1")
    status = written(plan(seen(vm, pod, evidence=sealed(virtual=frozenset({"node1"})))))
    message = (condition(status["conditions"], "Ready") or {})["message"]
    assert "promises nothing on a virtual machine (VirtualNode): only a fence agent restarts it. If" in message
    assert "kubectl virt fence node1 --off" in message


def test_an_attempt_that_ends_on_a_live_node_is_not_lost() -> None:
    vm = a_vm(phase="Running", attempts=[an_attempt()])
    own = Absent(vm["status"]["podName"], vm["status"]["podUID"], "node1", 0.0)
    status = written(plan(seen(vm, evidence=Evidence(Unreachable(), (own,)))))
    assert status["attempts"][-1]["message"] == "the pod was deleted by another client"
    assert condition(status["conditions"], "NodeLost") is None


def test_a_machine_that_waits_starts_only_on_request() -> None:
    vm = lost(onNodeLoss="Wait", runStrategy="Always")
    vm["metadata"]["generation"] = 2
    assert (power.decide(vm).on, power.decide(vm).reason) == (False, "NodeLost")
    status = written(plan(seen(vm)))
    assert "kubectl virt start" in (condition(status["conditions"], "Stalled") or {})["message"]
    vm["status"]["request"] = {**START, "runStrategy": "Always"}
    assert is_started(plan(seen(vm)))
    vm["status"].pop("request")
    vm["spec"]["onNodeLoss"] = "Restart"
    assert is_started(plan(seen(vm)))


def test_a_machine_that_waits_restarts_after_another_end() -> None:
    vm = lost(onNodeLoss="Wait", status="False")
    assert power.decide(vm).on
    assert not node_loss.waits_for_user(vm)


def test_a_restart_is_recorded_until_the_next_one() -> None:
    status = written(plan(seen(lost())))
    found = condition(status["conditions"], "NodeLost") or {}
    assert (found["status"], found["reason"], found["lastTransitionTime"]) == ("False", "Restarted", "2026-01-01T00:01:00Z")
    assert condition(written(plan(seen(lost(status="False"))))["conditions"], "NodeLost") is None


def test_a_machine_waits_until_the_others_are_known() -> None:
    actions = plan(seen(lost(ago=1.0)))
    assert not is_started(actions)
    assert (condition(written(actions)["conditions"], "Ready") or {})["reason"] == "RestartQueued"
    assert Requeue(1.0) in actions


@pytest.mark.parametrize(("request_", "lost_now", "starts"), [(START, "True", True), (None, "True", False), (None, "False", True)])
def test_only_an_automatic_restart_waits_for_its_turn(request_: dict[str, Any] | None, lost_now: str, starts: bool) -> None:
    vm = lost(ago=1.0, status=lost_now)
    vm["status"] |= {"request": request_} if request_ else {}
    assert is_started(plan(seen(vm))) is starts


def started(machines: list[dict[str, Any]], **priorities: int) -> list[str]:
    queue = Queue(tuple(machines), priorities)
    return [name_of(each) for each in machines if restart_turns.turn(each, queue, LIMITS, NOW) is None]


def test_machines_restart_by_priority_a_few_at_a_time() -> None:
    machines = [lost("a"), lost("b", priorityClassName="high"), lost("c", ago=6.0), lost("d", priorityClassName="high", ago=4.0)]
    assert started(machines, high=1000) == ["b", "d"]
    assert started(machines, high=-1) == ["a", "c"]
    assert started(machines, **{"high": 5, "": 10}) == ["a", "c"]
    assert started([*machines[:2], lost("x", status="False")], high=1) == ["b"]
    low = [lost(name, priorityClassName="low", ago=9.0) for name in ("b", "c")]
    assert started([lost("a"), *low], low=-1) == ["a", "b"]


def test_recent_restarts_take_their_places_for_an_interval() -> None:
    machine, recent, old = lost("a"), lost("x", status="False", ago=4.0), lost("y", status="False", ago=11.0)
    assert restart_turns.turn(machine, Queue((machine, recent, old)), LIMITS, NOW) is None
    assert list(Queue((machine, recent)).recent(recent, 10.0, NOW)) == [], "its own restart takes no place, as in an old copy"
    other = lost("z", status="False", ago=7.0)
    found = restart_turns.turn(machine, Queue((machine, recent, other)), LIMITS, NOW)
    assert found is not None
    assert (found.ahead, found.seconds) == (0, 3.0)


def test_recent_restarts_are_other_machines_newest_first() -> None:
    ages = {"a": 9.0, "m": 3.0, "x": 1.0, "y": -5.0, "z": 10.0}
    machines = tuple(lost(name, status="False", ago=ago) for name, ago in ages.items())
    assert list(Queue(machines).recent(machines[1], 10.0, NOW)) == [0.0, 1.0, 9.0]


@pytest.mark.parametrize(("age", "turn"), [(0.5, Turn(0, 1.5)), (-5.0, Turn(0, 2.0)), (2.0, None), (2.5, None)])
def test_the_others_are_known_after_a_moment(age: float, turn: Turn | None) -> None:
    machine = lost(ago=0.0)
    assert restart_turns.turn(machine, Queue((machine,)), LIMITS, NOW + timedelta(seconds=age)) == turn


@pytest.mark.parametrize(
    ("limits", "recent", "ahead", "seconds"),
    [
        (LIMITS, [4.0], 1, 5.5),
        (LIMITS, [9.0, 9.0], 0, 1.0),
        (dataclasses.replace(LIMITS, seconds=2.0), [], 3, 4.0),
        (dataclasses.replace(LIMITS, seconds=2.0), [], 4, 6.0),
    ],
)
def test_a_turn_comes_with_the_next_places(limits: Restarts, recent: list[float], ahead: int, seconds: float) -> None:
    restarted = [lost(f"r{each}", status="False", ago=ago) for each, ago in enumerate(recent)]
    first, machine = [lost(f"f{each}", ago=9.0) for each in range(ahead)], lost("m")
    found = restart_turns.turn(machine, Queue((*restarted, *first, machine)), limits, NOW + timedelta(seconds=0.5))
    assert found == Turn(ahead, seconds)


def test_restarted_machines_and_those_that_start_hold_no_place() -> None:
    restarted, starting = [lost(name, status="False", ago=20.0) for name in ("a", "b")], [lost(name, ago=9.0) for name in ("c", "d")]
    for each in starting:
        each["status"]["phase"] = "Scheduling"
    machine = lost("m")
    assert restart_turns.turn(machine, Queue((*restarted, *starting, machine)), LIMITS, NOW) is None


def test_a_long_queue_is_looked_at_less_often() -> None:
    machines = [lost(f"m{each:03}") for each in range(300)]
    waits = [restart_turns.turn(each, Queue(tuple(machines)), LIMITS, NOW) for each in (machines[2], machines[8], machines[-1])]
    assert [each.seconds for each in waits if each is not None] == [20.0, 30.0, 30.0]


@pytest.mark.parametrize("reason", ["ClaimNotFound", "BackOff", "FailedCreate"])
def test_a_machine_with_another_obstacle_holds_no_place(reason: str) -> None:
    others = [lost(name) for name in ("a", "b")]
    for each in others:
        each["status"]["conditions"][0]["reason"] = reason
    machine = lost("c")
    assert restart_turns.turn(machine, Queue((*others, machine)), LIMITS, NOW) is None
    for each in others:
        each["status"]["conditions"][0]["reason"] = "RestartQueued"
    assert restart_turns.turn(machine, Queue((*others, machine)), LIMITS, NOW) is not None


def test_machines_that_wait_for_a_user_hold_no_place() -> None:
    machines = [lost("a", onNodeLoss="Wait"), lost("b", runStrategy="Halted"), lost("c")]
    assert restart_turns.turn(machines[-1], Queue(tuple(machines)), LIMITS, NOW) is None


def test_the_index_has_lost_and_restarted_machines() -> None:
    found = [indexes.loss_of_vm(each) for each in (lost(), lost(status="False"), a_vm(), {"status": {"conditions": ["x"]}})]
    assert found == [[indexes.LOST], [indexes.LOST], [], []]


def test_priorities_include_that_of_the_default_class() -> None:
    classes = [{"metadata": {"name": "a"}, "value": 7}, {"metadata": {"name": "b"}, "value": 3, "globalDefault": True}]
    assert restart_turns.priorities_of([*classes, {"metadata": {"name": "bad"}, "value": "x"}]) == {"a": 7, "b": 3, "": 3}
