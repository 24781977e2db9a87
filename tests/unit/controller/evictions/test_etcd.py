from __future__ import annotations

from typing import Any

import pytest

from controller.evictions import etcd
from controller.evictions.eviction_plan import ALLOWED


def a_member(*, node: str = "node1", component: str = "etcd", phase: str = "Running", deleting: bool = False) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": "kubevirt-etcd-0", "namespace": "kubevirt", "labels": {"kubevirt.io": component}}
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {"metadata": metadata, "spec": {"nodeName": node} if node else {}, "status": {"phase": phase}}


@pytest.mark.parametrize("phase", ["Running", "Pending"])
def test_the_only_member_stays_and_it_is_said_what_moves_it(phase: str) -> None:
    told = etcd.plan(a_member(phase=phase))
    assert (told.allowed, told.migration, told.status) == (False, None, None)
    assert "pod kubevirt-etcd-0 is the only member of etcd" in told.message
    assert "kubectl virt move-etcd --to NODE" in told.message


@pytest.mark.parametrize(
    "pod",
    [
        None,
        a_member(component="virt-api"),
        a_member(node=""),
        a_member(phase="Succeeded"),
        a_member(phase="Failed"),
        a_member(deleting=True),
    ],
    ids=["gone", "another's", "on no node", "over", "failed", "going"],
)
def test_inactive_etcd_pod_may_be_evicted(pod: dict[str, Any] | None) -> None:
    assert etcd.plan(pod) == ALLOWED
