from __future__ import annotations

import copy
import itertools
from datetime import UTC, datetime
from typing import Any

import pytest

from apiserver.apis.virt.lifecycle import departure, phases, progress
from apiserver.apis.virt.rights.node_rights.migrations import MigrationWrite, validate
from apiserver.apis.virt.v1alpha1 import types
from tests.unit.handler.reconcilers.builders import a_migration, a_vm

NOW = datetime(2026, 11, 22, tzinfo=UTC)
MOMENT = "2026-11-22T00:00:00Z"
HERE = "10.0.0.2:8445"
FIELDS = sorted(each.alias or name for name, each in types.MigrationStatus.model_fields.items())
MAY: dict[tuple[str, str, str], set[str]] = {
    ("n2", "PreparingTarget", "PreparingTarget"): {"message"},
    ("n2", "PreparingTarget", "TargetReady"): {"targetAddress", "message"},
    ("n2", "TargetReady", "TargetReady"): {"targetAddress"},
    ("n2", "Running", "Running"): {"targetAddress"},
    ("n2", "Running", "Succeeded"): {"message", "endTime", "progress"},
    ("n2", "Succeeded", "Succeeded"): {"progress"},
    ("n", "TargetReady", "Running"): {"startTime"},
    ("n", "TargetReady", "Failed"): {"message", "endTime"},
    ("n", "TargetReady", "Cancelled"): {"message", "endTime"},
    ("n", "Running", "Running"): {"attempts", "conditions", "progress"},
    ("n", "Running", "Failed"): {"message", "endTime", "progress"},
    ("n", "Running", "Cancelled"): {"message", "endTime", "progress"},
}
"""By (node, phase before, phase after); n is the source and n2 the target."""
SAMPLES: dict[str, Any] = {
    "attempt": 2,
    "attempts": [{"number": 1, "reason": "ConnectionBroken", "message": "broke", "endTime": MOMENT, "targetNode": "n2", "targetPod": "p2"}],
    "conditions": [{"type": "Released", "status": "True", "reason": departure.BY_HANDLER}],
    "endTime": MOMENT,
    "message": "because",
    "observedGeneration": 3,
    "options": {"bandwidth": "1Gi"},
    "phase": "Scheduling",
    "phaseTransitionTimestamps": [],
    "policy": "fast",
    "progress": {"totalBytes": 1},
    "sourceNode": "n3",
    "sourcePod": "p3",
    "sourcePodUID": "pod-3",
    "startTime": MOMENT,
    "targetAddress": HERE,
    "targetNode": "n3",
    "targetPod": "p3",
    "targetPodIPs": ["169.254.169.254"],
    "targetPodUID": "pod-3",
}


def stored(phase: str, **status: Any) -> dict[str, Any]:
    address = {} if phase == "PreparingTarget" else {"targetAddress": "10.0.0.2:8446"}
    history = [{"phase": phase, "time": MOMENT}] if phase else []
    return a_migration(phase, deleting=True, **address, phaseTransitionTimestamps=history, **{"attempt": 1, **status})


def written(old: dict[str, Any], phase: str, /, **changes: Any) -> dict[str, Any]:
    new = copy.deepcopy(old)
    entered = phases.enter(new["status"], phase, NOW)
    if phase == "TargetReady" and phases.phase_of(old) != phase:
        entered["targetAddress"] = HERE
    new["status"] = entered | changes
    return new


def paths(node: str, old: dict[str, Any], new: dict[str, Any], *, pod: str = "") -> set[str]:
    """Return the paths of this node's write that its rights forbid. ``pod``: the VM's, by default that after an honest outcome."""
    found = pod or ("p2" if phases.phase_of(new) == phases.SUCCEEDED else "p")
    write = MigrationWrite(node, old, new, NOW, a_vm("Running", podName=found), frozenset({"10.0.0.2", "fd00::2"}))
    return {each.path for each in validate(write)}


def test_every_field_of_the_schema_is_tried() -> None:
    assert sorted(SAMPLES) == FIELDS


@pytest.mark.parametrize(
    ("node", "before", "after"), list(itertools.product(("n", "n2"), ("", *phases.MIGRATION_PHASES), phases.MIGRATION_PHASES))
)
def test_each_side_takes_its_own_steps(node: str, before: str, after: str) -> None:
    old = stored(before)
    assert paths(node, old, written(old, after)) == (set() if (node, before, after) in MAY else {"status.phase"})


@pytest.mark.parametrize(("step", "field"), list(itertools.product(MAY, FIELDS)))
def test_only_the_fields_of_a_step_are_written(step: tuple[str, str, str], field: str) -> None:
    node, before, after = step
    old = stored(before)
    new = written(old, after, **{field: SAMPLES[field]})
    found = paths(node, old, new)
    if field in MAY[step]:
        assert found == set()
    else:
        assert f"status.{field}" in found


@pytest.mark.parametrize("phase", ["", *phases.MIGRATION_PHASES])
def test_a_node_that_is_neither_source_nor_target_writes_nothing(phase: str) -> None:
    old = stored(phase)
    for node in ("n3", "N", ""):
        assert paths(node, old, copy.deepcopy(old)) == {"status.sourceNode", "status.targetNode"}
        for field in FIELDS:
            assert paths(node, old, written(old, phase, **{field: SAMPLES[field]})) == {"status.sourceNode", "status.targetNode"}


@pytest.mark.parametrize("node", ["n3", "n2", "n"])
def test_node_cannot_make_itself_a_migration_party(node: str) -> None:
    old = a_migration("PreparingTarget", sourceNode="s", targetNode="t")
    for side in ("sourceNode", "targetNode"):
        assert paths(node, old, written(old, "TargetReady", **{side: node}))


@pytest.mark.parametrize(
    "address",
    ["10.0.0.1:8445", "10.0.0.2:8444", "10.0.0.2:80", "10.0.0.2", ":8445", "n2:8445", "[fd00::3]:8445", "[10.0.0.2]:8445", "10.0.0.02:8445",
     "fd00::2:8445", "10.0.0.2:08445", "10.0.0.2:8445 ", "", None],
)  # fmt: skip
def test_target_address_must_be_the_targets_virt_handler(address: str | None) -> None:
    for before in ("PreparingTarget", "TargetReady"):
        old = stored(before)
        assert paths("n2", old, written(old, "TargetReady", targetAddress=address)) == {"status.targetAddress"}


@pytest.mark.parametrize("address", ["10.0.0.2:8445", "[fd00::2]:8445", "[FD00:0::2]:8445"])
def test_the_targets_own_address_is_taken_however_it_is_written(address: str) -> None:
    old = stored("PreparingTarget")
    assert paths("n2", old, written(old, "TargetReady", targetAddress=address)) == set()


def test_without_an_address_no_target_is_ready() -> None:
    old = stored("PreparingTarget")
    assert paths("n2", old, written(old, "TargetReady", targetAddress=None)) == {"status.targetAddress"}


def test_success_needs_the_machine_in_the_target_pod() -> None:
    old = stored("Running")
    for pod in ("p", "p3"):
        assert paths("n2", old, written(old, "Succeeded"), pod=pod) == {"status.phase"}
    found = validate(MigrationWrite("n2", old, written(old, "Succeeded"), NOW, None))
    assert [each.path for each in found] == ["status.phase"]


@pytest.mark.parametrize("after", ["Failed", "Cancelled"])
def test_the_source_does_not_take_back_a_guest_that_left(after: str) -> None:
    old = stored("Running")
    assert paths("n", old, written(old, after), pod="p2") == {"status.phase"}
    released = stored("Running", conditions=[{"type": "Released", "status": "True"}])
    assert paths("n", released, written(released, after)) == {"status.phase"}
    assert validate(MigrationWrite("n", old, written(old, after), NOW, None)) == []


def test_only_what_is_being_deleted_is_cancelled() -> None:
    old = stored("Running")
    del old["metadata"]["deletionTimestamp"]
    assert paths("n", old, written(old, "Cancelled")) == {"status.phase"}
    assert paths("n", old, written(old, "Failed")) == set()


@pytest.mark.parametrize(("node", "after"), [("n", "Failed"), ("n2", "Succeeded")])
def test_the_end_is_now(node: str, after: str) -> None:
    old = stored("Running")
    for moment in ("9999-01-01T00:00:00Z", "1970-01-01T00:00:00Z"):
        assert paths(node, old, written(old, after, endTime=moment)) == {"status.endTime"}


RELEASED = {"type": "Released", "status": "True", "reason": departure.BY_HANDLER}


@pytest.mark.parametrize(
    ("before", "after", "allowed"),
    [
        ([], [RELEASED], True),
        ([{**RELEASED, "status": "False"}], [RELEASED], True),
        ([], [{**RELEASED, "status": "False"}], False),
        ([], [{**RELEASED, "reason": departure.BY_POD}], False),
        ([RELEASED], [{**RELEASED, "status": "False"}], False),
        ([{**RELEASED, "reason": departure.BY_POD}], [RELEASED], False),
        ([RELEASED], [], False),
        ([], [{"type": "Succeeded", "status": "True"}], False),
        ([], [RELEASED, {"type": "Other", "status": "True"}], False),
        ([{"type": "Succeeded", "status": "Unknown"}], [RELEASED], False),
        ([], [{"type": progress.CONVERGING, "status": "False", "reason": progress.WRITES_FASTER}], True),
        ([{"type": progress.CONVERGING, "status": "False"}], [{"type": progress.CONVERGING, "status": "True"}], True),
        ([{"type": progress.CONVERGING, "status": "False"}], [], False),
    ],
)
def test_the_source_only_says_that_the_guest_is_released(before: list[Any], after: list[Any], *, allowed: bool) -> None:
    old = stored("Running", conditions=before)
    found = paths("n", old, written(old, "Running", conditions=after))
    assert (found == set()) is allowed, found
    if before != after:
        assert paths("n2", old, written(old, "Running", conditions=after))


@pytest.mark.parametrize(
    ("node", "before", "after", "field"), [("n", "TargetReady", "Running", "startTime"), ("n", "Running", "Failed", "endTime")]
)
def test_moments_are_written_once(node: str, before: str, after: str, field: str) -> None:
    old = stored(before, **{field: "2026-11-21T00:00:00Z"})
    assert paths(node, old, written(old, after)) == set()
    for value in (MOMENT, None):
        assert paths(node, old, written(old, after, **{field: value})) == {f"status.{field}"}


FIRST: dict[str, Any] = SAMPLES["attempts"][0]


@pytest.mark.parametrize(
    ("before", "attempts", "refused"),
    [
        ({}, [FIRST], set()),
        ({"attempts": [{**FIRST, "reason": "TargetPodEnded"}]}, [FIRST], set()),
        ({"attempt": 2, "attempts": [FIRST]}, [FIRST, {**FIRST, "number": 2}], set()),
        ({}, [{**FIRST, "number": 2}], {"status.attempts[2]"}),
        ({"attempt": None}, [FIRST], {"status.attempts[1]"}),
        ({"attempt": 2, "attempts": [FIRST]}, [{**FIRST, "message": "other"}], {"status.attempts[1]"}),
        ({"attempt": 2, "attempts": [FIRST]}, [{**FIRST, "number": 2}], {"status.attempts[1]"}),
        ({"attempts": [FIRST]}, [], {"status.attempts[1]"}),
        ({}, [{**FIRST, "reason": "TargetPodEnded"}], {"status.attempts[1].reason"}),
        ({}, [{**FIRST, "targetNode": "n3", "targetPod": "p3"}], {"status.attempts[1].targetNode", "status.attempts[1].targetPod"}),
        ({}, [{**FIRST, "endTime": "2026-11-23T00:00:00Z"}], {"status.attempts[1].endTime"}),
        ({"conditions": SAMPLES["conditions"]}, [FIRST], {"status.attempts[1]"}),
    ],
)
def test_source_reports_failure_of_its_current_attempt_only(
    before: dict[str, Any], attempts: list[dict[str, Any]], refused: set[str]
) -> None:
    old = stored("Running", **before)
    assert paths("n", old, written(old, "Running", attempts=attempts)) == refused


def test_source_cannot_fail_an_attempt_after_the_take_over() -> None:
    old = stored("Running")
    assert paths("n", old, written(old, "Running", attempts=[FIRST]), pod="p2") == {"status.attempts[1]"}


def test_source_cannot_report_departure_and_failure_at_once() -> None:
    old = stored("Running")
    assert paths("n", old, written(old, "Running", attempts=[FIRST], conditions=SAMPLES["conditions"])) == {"status.attempts[1]"}


def test_source_cannot_report_departure_after_failure() -> None:
    """virt-controller would wait for a release that the target never makes."""
    old = stored("Running", attempts=[FIRST])
    assert paths("n", old, written(old, "Running", conditions=SAMPLES["conditions"])) == {"status.conditions[Released]"}
    earlier = stored("Running", attempt=2, attempts=[FIRST])
    assert paths("n", earlier, written(earlier, "Running", conditions=SAMPLES["conditions"])) == set()
