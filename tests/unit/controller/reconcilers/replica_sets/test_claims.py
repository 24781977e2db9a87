from __future__ import annotations

from typing import Any

import pytest

from apiserver.apis.meta.objects import Object, name_of
from controller.reconcilers.replica_sets import claims, replica_set_plan
from controller.reconcilers.replica_sets.replica_set_plan import Observed
from tests.unit.controller.reconcilers.replica_sets.builders import NOW, a_machine, a_set

SPEC = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


def a_pool(deleted: str = "Retain", scaled: str = "Delete", **given: Any) -> Object:
    labels = {"a": "b", "kubevirt.io/replica-set-uid": "of-another"}
    template = {"metadata": {"name": "data", "labels": labels, "annotations": {"c": "d"}}, "spec": SPEC}
    policy = {"whenDeleted": deleted, "whenScaled": scaled}
    return a_set(ordinals={}, volumeClaimTemplates=[template], persistentVolumeClaimRetentionPolicy=policy, **given)


def a_claim(name: str, creator: str = "uid-of-web", **metadata: Any) -> Object:
    return {"metadata": {"name": name, "namespace": "ns", "labels": {"kubevirt.io/replica-set-uid": creator}, **metadata}}


def test_a_machines_claims_are_the_templates() -> None:
    (made,) = claims.of_machine(a_pool(), 3)
    labels = {"a": "b", "kubevirt.io/replica-set-uid": "uid-of-web"}
    assert made["metadata"] == {"name": "data-web-3", "namespace": "ns", "labels": labels, "annotations": {"c": "d"}}
    assert (made["kind"], made["spec"]) == ("PersistentVolumeClaim", SPEC)
    (owned,) = claims.of_machine(a_pool(deleted="Delete"), 3)
    assert [each["uid"] for each in owned["metadata"]["ownerReferences"]] == ["uid-of-web"]


@pytest.mark.parametrize(
    ("given", "claim", "goes"),
    [
        ({}, a_claim("data-web-1"), True),
        ({}, a_claim("data-web-0"), False),
        ({}, a_claim("data-web-2"), False),
        ({}, a_claim("data-web-1", creator="uid-of-an-earlier-web"), False),
        ({}, a_claim("data-web-1", labels={}), False),
        ({}, a_claim("data-web-1", namespace="other"), False),
        ({}, a_claim("other-web-1"), False),
        ({}, a_claim("data-web-x"), False),
        ({}, a_claim("data-web-1", deletionTimestamp="2026-11-29T00:00:00Z"), False),
        ({"scaled": "Retain"}, a_claim("data-web-1"), False),
        ({"paused": True}, a_claim("data-web-1"), False),
        ({"deleting": True}, a_claim("data-web-1"), False),
        ({"deleted": "Delete"}, a_claim("data-web-1"), True),
    ],
)
def test_only_the_sets_own_claims_of_ended_ordinals_go(given: dict[str, Any], claim: Object, *, goes: bool) -> None:
    machines = [a_machine("web-0"), a_machine("web-2", deleting=True)]
    found = replica_set_plan.plan(Observed(a_pool(replicas=1, **given), machines, NOW, [claim]))
    assert list(map(name_of, found.delete_claims)) == [name_of(claim)] * goes
    assert found.acts is goes
