from __future__ import annotations

from typing import Any

import pytest

from apiserver.apis.meta.objects import Object
from apiserver.kubectl import rollout_plan
from apiserver.kubectl.messages import Failure
from apiserver.kubectl.rollout_plan import Progress

DB = 'virtualmachinereplicasets.kubevirt.io "db"'


def revision(number: int, cause: str = "", **template: Any) -> Object:
    return {"name": f"name{number}", "revision": number, "template": {"metadata": {}, "spec": {"number": number}, **template}} | (
        {"changeCause": cause} if cause else {}
    )


def a_set(status: Object | None = None, *, revisions: int = 2, **spec: Any) -> Object:
    known = [revision(each) for each in range(1, revisions + 1)]
    told = {"observedGeneration": 2, "currentRevision": "name1", "updateRevision": "name2", "updatedReplicas": 1, "revisions": known}
    wanted = {"replicas": 3, "ordinals": {"start": 1}, "template": {"spec": {"number": revisions}}, **spec}
    return {"metadata": {"name": "db", "generation": 2}, "spec": wanted, "status": {**told, **(status or {})}}


def condition(kind: str, message: str) -> Object:
    return {"type": kind, "status": "True", "reason": "x", "message": message}


LACK = condition("Reconciling", "2 of 3 machines are available\n; db-3: ClaimNotFound")
DONE = {"currentRevision": "name2", "updatedReplicas": 3}
WAITING = 'Waiting for virtualmachinereplicaset "db" rollout to finish: '
ROLLED_OUT = Progress('virtualmachinereplicaset "db" successfully rolled out', done=True)


def partition(number: int) -> Object:
    return {"rollingUpdate": {"partition": number}}


@pytest.mark.parametrize(
    ("replica_set", "expected"),
    [
        (a_set({"observedGeneration": 1}), Progress("Waiting for virtualmachinereplicaset spec update to be observed...")),
        (a_set({"observedGeneration": None}), Progress("Waiting for virtualmachinereplicaset spec update to be observed...")),
        (a_set(), Progress(f"{WAITING}1 out of 3 machines have been updated...")),
        (
            a_set({"conditions": [LACK, condition("ReplicaPaused", "spec.paused is true")]}),
            Progress(f"{WAITING}spec.paused is true; 2 of 3 machines are available | ; db-3: ClaimNotFound..."),
        ),
        (
            a_set({"conditions": [LACK]}, updateStrategy=partition(2)),
            Progress(f"{WAITING}1 out of 2 machines have been updated; 2 of 3 machines are available | ; db-3: ClaimNotFound..."),
        ),
        (a_set(DONE), ROLLED_OUT),
        (a_set({**DONE, "conditions": [LACK]}), Progress(f"{WAITING}2 of 3 machines are available | ; db-3: ClaimNotFound...")),
        (a_set(updateStrategy=partition(9)), Progress("partitioned roll out complete: 0 machines have been updated", done=True)),
        (a_set(updateStrategy=partition(3)), Progress("partitioned roll out complete: 1 machines have been updated", done=True)),
        (a_set(updateStrategy=partition(2)), Progress(f"{WAITING}1 out of 2 machines have been updated...")),
        (
            a_set({}, revisions=0, ordinals=None),
            Progress(f"{ROLLED_OUT.text}; without spec.ordinals, only new machines have the newest template", done=True),
        ),
        (a_set({"conditions": [condition("Reconciling", "1 of 3")]}, revisions=0, ordinals=None), Progress(f"{WAITING}1 of 3...")),
    ],
)
def test_progress_is_told_in_kubectls_words(replica_set: Object, expected: Progress) -> None:
    assert rollout_plan.progress(replica_set) == expected


def test_status_of_other_updates_is_refused() -> None:
    with pytest.raises(Failure, match="only available for RollingUpdate"):
        rollout_plan.progress(a_set(updateStrategy={"type": "OnDelete"}))
    with pytest.raises(Failure, match=r"desired revision \(1\) is different from the running revision \(2\)"):
        rollout_plan.progress(a_set(DONE), 1)
    assert rollout_plan.progress(a_set(DONE), 2).done


def test_history_lists_revisions_and_prints_one() -> None:
    found = a_set({"revisions": [revision(1), revision(4, "more\x1b memory", metadata={"labels": {"a": "b"}})]})
    assert rollout_plan.history(found).splitlines() == [
        "virtualmachinereplicaset.kubevirt.io/db",
        "REVISION   NAME    CHANGE-CAUSE",
        "1          name1   <none>",
        "4          name4   more memory",
    ]
    assert rollout_plan.details(found, 4).splitlines() == [
        "virtualmachinereplicaset.kubevirt.io/db with revision #4",
        "Template:",
        "  metadata:",
        "    labels:",
        "      a: b",
        "  spec:",
        "    number: 4",
    ]
    with pytest.raises(Failure, match="unable to find specified revision 2 in history"):
        rollout_plan.details(found, 2)


@pytest.mark.parametrize(("number", "expected"), [(0, 2), (1, 1), (3, 3)])
def test_undo_takes_an_earlier_template(number: int, expected: int) -> None:
    undone, found = rollout_plan.undone(a_set(revisions=3), number)
    assert (found, undone["spec"]["template"]["spec"]["number"], undone["spec"]["replicas"]) == (expected, expected, 3)
    assert "status" not in undone


@pytest.mark.parametrize(("number", "annotations"), [(1, {"a": "b"}), (2, {"a": "b", "kubernetes.io/change-cause": "less"})])
def test_undo_restores_the_cause_of_the_change(number: int, annotations: Object) -> None:
    found = a_set({"revisions": [revision(1), revision(2, "less"), revision(3, "more")]})
    found["metadata"]["annotations"] = {"a": "b", "kubernetes.io/change-cause": "more"}
    assert rollout_plan.undone(found, number)[0]["metadata"]["annotations"] == annotations


@pytest.mark.parametrize(
    ("replica_set", "number", "message"),
    [
        (a_set(revisions=1), 0, "no last revision to roll back to"),
        (a_set(revisions=2), 7, "unable to find specified revision 7"),
        (a_set(revisions=0, ordinals=None), 0, f"no rollout history found for {DB}: only sets with spec.ordinals"),
        (a_set(paused=True), 0, f"{DB}: can't rollback a paused set; first: kubectl virt rollout resume db"),
    ],
)
def test_undo_is_refused(replica_set: Object, number: int, message: str) -> None:
    with pytest.raises(Failure, match=f"error: {message}"):
        rollout_plan.undone(replica_set, number)


def test_restart_is_an_annotation_of_the_template() -> None:
    found = a_set(template={"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}, "spec": {}})
    template = rollout_plan.restarted(found, "now")["spec"]["template"]
    assert template["metadata"] == {"labels": {"a": "b"}, "annotations": {"c": "d", "kubevirt.io/restartedAt": "now"}}
    for refused, message in ((a_set(paused=True), "can't restart a paused set"), (a_set(ordinals=None), "has no spec.ordinals")):
        with pytest.raises(Failure, match=message):
            rollout_plan.restarted(refused, "now")


def test_a_set_is_paused_once() -> None:
    assert rollout_plan.paused(a_set(), wanted=True)["spec"]["paused"] is True
    assert rollout_plan.paused(a_set(paused=True), wanted=False)["spec"]["paused"] is False
    with pytest.raises(Failure, match=f"{DB} is already paused"):
        rollout_plan.paused(a_set(paused=True), wanted=True)
    with pytest.raises(Failure, match=f"{DB} is not paused"):
        rollout_plan.paused(a_set(), wanted=False)
