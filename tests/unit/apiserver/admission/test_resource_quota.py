from __future__ import annotations

from typing import Any

from apiserver.admission.resource_quota import Usage, count_name, counts
from apiserver.apis.meta.resources import Resource
from apiserver.registry.generic.admission import Attributes

THINGS = Resource("g.test", "v1", "things", "Thing")
COUNTED = "count/things.g.test"


def quota(hard: str = "2", used: str | None = "1", name: str = "q", **spec: Any) -> dict[str, Any]:
    status = {"hard": {COUNTED: hard, "pods": "3"}, "used": {"pods": "1"} | ({} if used is None else {COUNTED: used})}
    return {"metadata": {"name": name, "namespace": "ns"}, "spec": spec, "status": status}


def created(name: str = "t") -> Attributes:
    return Attributes("CREATE", THINGS, namespace="ns", name=name)


def test_the_name_that_objects_are_counted_under() -> None:
    assert count_name(THINGS) == COUNTED
    assert count_name(Resource("", "v1", "pods", "Pod")) == "count/pods"


def test_only_unscoped_quotas_of_the_resource_count() -> None:
    assert counts(quota(), COUNTED)
    assert not counts(quota(), "count/others.g.test")
    assert not counts(quota(scopes=["BestEffort"]), COUNTED)
    assert not counts({"metadata": {"name": "new"}, "spec": {"hard": {COUNTED: "1"}}}, COUNTED)


def test_as_many_as_fit_are_taken_and_every_quota_is_charged() -> None:
    usage = Usage.of([quota("2", "0", "a"), quota("1k", "5", "b")], COUNTED)
    for _ in range(2):
        assert usage.check(created()) is None
        usage.take()
    refusal = usage.check(created("t3"))
    assert refusal is not None
    assert (refusal.code, refusal.message) == (
        403,
        f'things.g.test "t3" is forbidden: exceeded quota: a, requested: {COUNTED}=1, used: {COUNTED}=2, limited: {COUNTED}=2',
    )
    assert [each["status"]["used"] for each in usage.charged()] == [{"pods": "1", COUNTED: "2"}, {"pods": "1", COUNTED: "7"}]


def test_quota_without_charges_is_not_written() -> None:
    assert Usage.of([quota()], COUNTED).charged() == []


def test_before_the_controller_counted_nothing_is_admitted() -> None:
    refusal = Usage.of([quota(used=None)], COUNTED).check(created())
    assert refusal is not None
    assert refusal.message == f'things.g.test "t" is forbidden: status unknown for quota: q, resources: {COUNTED}'
