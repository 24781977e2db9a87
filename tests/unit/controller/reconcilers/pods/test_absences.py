from __future__ import annotations

import pytest

from apiserver.apis.meta.objects import NamespacedName
from controller.reconcilers.pods.absences import CUT_OFF_SECONDS, KUBELET_SECONDS, Absences, lingering_seconds
from tests.unit.controller.reconcilers.builders import a_pod, a_vm


class Time:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_missing_pod_lingers_for_its_own_grace_period() -> None:
    time = Time()
    absences, vm, pod = Absences(time), a_vm(), a_pod()
    pod["spec"]["terminationGracePeriodSeconds"] = 600
    absences.present(vm, pod)
    assert absences.left(vm, pod["metadata"]["uid"], 15.0) == lingering_seconds(600)
    time.now += 599
    assert absences.left(vm, pod["metadata"]["uid"], 15.0) == CUT_OFF_SECONDS + KUBELET_SECONDS + 1
    time.now += 120
    assert absences.left(vm, pod["metadata"]["uid"], 15.0) == 0


def test_lingering_restarts_after_a_silent_kubelet_returns() -> None:
    time = Time()
    absences, vm, pod = Absences(time), a_vm(), a_pod()
    uid = pod["metadata"]["uid"]
    absences.hold(vm)
    for _ in range(3):
        assert absences.left(vm, uid, 10.0) == lingering_seconds(10)
        absences.hold(vm)
        time.now += 1000
    assert absences.left(vm, uid, 10.0) == lingering_seconds(10)
    time.now += 4
    assert absences.left(vm, uid, 10.0) == lingering_seconds(10) - 4


def test_a_pod_that_is_there_again_was_not_absent() -> None:
    time = Time()
    absences, vm, pod = Absences(time), a_vm(), a_pod()
    absences.left(vm, pod["metadata"]["uid"], 10.0)
    time.now += 20
    absences.present(vm, pod)
    pod_grace = 0.0
    assert absences.left(vm, pod["metadata"]["uid"], 99.0) == lingering_seconds(pod_grace)


def test_a_pod_that_was_seen_to_end_lingers_no_more() -> None:
    absences, vm, pod = Absences(Time()), a_vm(), a_pod(phase="Failed", exit_code=1)
    absences.present(vm, pod)
    assert absences.left(vm, pod["metadata"]["uid"], 99.0) == 0
    absences.present(vm, a_pod())
    assert absences.left(vm, pod["metadata"]["uid"], 99.0) == lingering_seconds(0)


def test_pod_seen_running_may_run_until_seen_ended() -> None:
    absences, vm, pod = Absences(Time()), a_vm(), a_pod()
    uid = pod["metadata"]["uid"]
    assert not absences.may_run(vm, uid)
    absences.present(vm, pod)
    assert absences.may_run(vm, uid)
    assert not absences.may_run(vm, "another")
    for each in (a_pod(phase="Succeeded", exit_code=0), a_pod(phase="Pending", node="")):
        absences.present(vm, each)
        assert not absences.may_run(vm, uid)
        assert absences.left(vm, uid, 99.0) == 0


def test_unseen_pod_lingers_full_time_and_each_pod_its_own() -> None:
    time = Time()
    absences, vm = Absences(time), a_vm()
    assert absences.left(vm, "first", 45.0) == lingering_seconds(45)
    time.now += 30
    assert absences.left(vm, "second", 45.0) == lingering_seconds(45)
    absences.forget(NamespacedName("default", "testvm"))
    assert len(absences) == 0


@pytest.mark.parametrize("other", ["0", "zzz"])
def test_a_pod_of_another_uid_is_another_pod(other: str) -> None:
    absences, vm, pod = Absences(Time()), a_vm(), a_pod()
    pod["spec"]["terminationGracePeriodSeconds"] = 600
    absences.present(vm, pod)
    assert absences.may_run(vm, pod["metadata"]["uid"])
    assert not absences.may_run(vm, other)
    assert absences.left(vm, other, 10.0) == lingering_seconds(10)


def test_a_pod_went_first_only_if_its_node_reported_after_that() -> None:
    absences, vm = Absences(Time()), a_vm()
    absences.note_report(vm)
    assert not absences.went_first(vm, "first")
    absences.left(vm, "first", 10.0)
    assert not absences.went_first(vm, "first")
    absences.note_report(vm)
    assert absences.went_first(vm, "first")
    assert not any(absences.went_first(vm, other) for other in ("earlier", "second"))
