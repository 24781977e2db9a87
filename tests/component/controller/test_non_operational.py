from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from apiserver.apis.meta import times
from apiserver.apis.meta.objects import condition
from controller.reconcilers.settings import Times
from handler import heartbeat
from handler.devices.acceleration import Verdict
from tests.component.controller.test_controller import LEASES, NODES, VMS, Cluster, with_a_bad_node, working
from tests.component.controller.test_unreachable_nodes import LEASE_NAMESPACE
from tests.fakes.kubeapi import FakeAPI

QUICK = Times(shared=0.05)
SETTLED_SECONDS = 8 * QUICK.shared
"""Enough for several passes: each follows its event after 1.5 times ``shared``."""
FLAG = "--taint-non-operational-nodes=NoSchedule"
OURS = {"key": "kubevirt.io/non-operational", "effect": "NoSchedule"}
OTHER = {"key": "other", "effect": "NoExecute"}


class Marked(Cluster):
    """A cluster in which starts failed on node2 (:func:`marking`): the node's taints, condition and writes."""

    def taints(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (self.api.get(NODES, "", "node2").get("spec") or {}).get("taints") or []
        return found

    def told(self) -> tuple[str, str]:
        found = condition(self.api.get(NODES, "", "node2")["status"]["conditions"], "KubevirtNonOperational") or {}
        return found.get("status", ""), found.get("reason", "")

    async def is_marked(self) -> None:
        await self.until(lambda: OURS in self.taints() and self.told() == ("True", "StartsFailed"), "taint and condition")

    async def is_cleared(self, reason: str) -> None:
        await self.until(lambda: OURS not in self.taints() and self.told() == ("False", reason), "the end of taint and condition")

    def writes(self) -> list[tuple[str, str]]:
        return [(method, path) for method, path, _ in self.api.writes if path.startswith(NODES)]


@asynccontextmanager
async def marking(
    api: FakeAPI, *, minutes: int = 1, handlers: int = 2, taints: tuple[dict[str, Any], ...] = (OTHER,)
) -> AsyncIterator[Marked]:
    """Run virt-controller; three starts failed on node2 ``minutes`` ago. ``handlers``: nodes with virt-handler."""
    for number in range(1, handlers + 1):
        lease = heartbeat.lease(f"node{number}", LEASE_NAMESPACE, Verdict(accelerated=False, reason="test"), "1990-01-01T00:00:00Z")
        lease["spec"]["leaseDurationSeconds"] = 3600
        await api.put(LEASES, lease)
    async with working(api, "--no-leader-elect", FLAG, times=QUICK):
        judged = api.authorize
        assert judged is not None
        allowed = {("GET", f"{NODES}/node2"), ("PUT", f"{NODES}/node2"), ("PATCH", f"{NODES}/node2/status")}
        api.authorize = lambda method, path, query: (method, path) in allowed or judged(method, path, query)
        await with_a_bad_node(api, minutes=minutes)
        await api.edit(NODES, "", "node2", lambda obj: obj.setdefault("spec", {}).update(taints=list(taints)))
        yield Marked(api)


async def test_a_non_operational_node_is_marked_once(api: FakeAPI) -> None:
    async with marking(api) as found:
        await found.is_marked()
        assert found.taints() == [OTHER, OURS]
        assert found.writes() == [("PATCH", f"{NODES}/node2/status"), ("PUT", f"{NODES}/node2")]
        ready = condition(api.get(NODES, "", "node2")["status"]["conditions"], "Ready")
        assert ready == {"type": "Ready", "status": "True"}
        await api.edit(NODES, "", "node2", lambda obj: obj["metadata"].setdefault("annotations", {}).update(a="b"))
        await asyncio.sleep(SETTLED_SECONDS)
        assert len(found.writes()) == 2


async def test_a_repair_clears_the_node(api: FakeAPI) -> None:
    async with marking(api) as found:
        await found.is_marked()
        repaired = {"kubevirt.io/repaired-at": times.to_rfc3339(datetime.now(UTC))}
        await api.edit(NODES, "", "node2", lambda obj: obj["metadata"].update(annotations=repaired))
        await found.is_cleared("Operational")
        assert found.taints() == [OTHER]


async def test_the_node_on_trial_has_no_taint(api: FakeAPI) -> None:
    async with marking(api, minutes=15, taints=(OTHER, OURS)) as found:
        await found.is_cleared("Trial")
        assert found.taints() == [OTHER]


async def test_a_mark_without_a_cause_is_taken_back(api: FakeAPI) -> None:
    async with marking(api) as found:
        await found.is_marked()
        for namespace, name in (("ns", "a"), ("ns", "b"), ("other", "c")):
            await api.edit(VMS, namespace, name, lambda obj: obj["metadata"].pop("finalizers", None))
            await api.remove(VMS, namespace, name)
        await found.is_cleared("Operational")
        await api.edit(NODES, "", "node2", lambda obj: obj["spec"]["taints"].append(OURS))
        await found.until(lambda: OURS not in found.taints(), "the end of the taint")


async def test_a_removed_taint_returns_and_a_conflict_is_retried(api: FakeAPI) -> None:
    async with marking(api) as found:
        await found.is_marked()
        further, allowed, before = {"key": "further", "effect": "NoSchedule"}, api.authorize, len(found.writes())
        assert allowed is not None

        def meanwhile(method: str, path: str, query: Any) -> bool:
            if method == "PUT" and path == f"{NODES}/node2" and len(found.writes()) == before:
                node = api.objects[NODES, "", "node2"]
                node["metadata"]["resourceVersion"] = "1000000"
                node["spec"]["taints"] = [further]
            return allowed(method, path, query)

        api.authorize = meanwhile
        await api.edit(NODES, "", "node2", lambda obj: obj["spec"].update(taints=[OTHER]))
        await found.until(lambda: found.taints() == [further, OURS], "both taints")
        assert len(found.writes()) == before + 2


async def test_a_node_with_the_same_name_begins_without_marks(api: FakeAPI) -> None:
    async with marking(api) as found:
        await found.is_marked()
        await api.remove(NODES, "", "node2")
        made = {"name": "node2", "creationTimestamp": times.to_rfc3339(datetime.now(UTC))}
        await api.put(NODES, {"metadata": made, "status": {"conditions": [{"type": "Ready", "status": "True"}]}})
        await asyncio.sleep(SETTLED_SECONDS)
        assert (found.taints(), found.told()) == ([], ("", ""))


async def test_an_unseen_new_node_of_the_same_name_is_not_marked(api: FakeAPI) -> None:
    async with marking(api) as found:
        await found.is_marked()
        allowed, before, reads = api.authorize, len(found.writes()), 0
        assert allowed is not None

        def replaced(method: str, path: str, query: Any) -> bool:
            nonlocal reads
            if (method, path) == ("GET", f"{NODES}/node2"):
                reads += 1
                api.objects[NODES, "", "node2"]["metadata"]["uid"] = "of-the-new-node"
            return allowed(method, path, query)

        api.authorize = replaced
        await api.edit(NODES, "", "node2", lambda obj: obj["spec"].update(taints=[OTHER]))
        await found.until(lambda: reads > 1, "a second look")
        assert (found.taints(), len(found.writes())) == ([OTHER], before)


async def test_the_only_node_with_virt_handler_is_not_tainted(api: FakeAPI) -> None:
    async with marking(api, handlers=1) as found:
        await found.until(lambda: found.told() == ("True", "StartsFailed"), "the condition")
        await asyncio.sleep(SETTLED_SECONDS)
        assert found.taints() == [OTHER]
        message = condition(api.get(NODES, "", "node2")["status"]["conditions"], "KubevirtNonOperational") or {}
        assert "it is not tainted" in message["message"]


async def test_without_the_flag_no_node_is_written(api: FakeAPI) -> None:
    async with working(api, "--no-leader-elect", times=QUICK):
        await with_a_bad_node(api, minutes=1)
        await asyncio.sleep(SETTLED_SECONDS)
        assert not Marked(api).writes()
