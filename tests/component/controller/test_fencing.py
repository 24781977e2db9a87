from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.meta.objects import name_of
from handler import heartbeat
from handler.devices.acceleration import Verdict
from tests.component.controller.test_controller import LEASES, NODES, PODS, working
from tests.component.controller.test_unreachable_nodes import HOLDS, LEASE_NAMESPACE, Node
from tests.fakes.kubeapi import FakeAPI

ONE, TWO = (f"6f1c2d3e-0000-4000-8000-00000000000{each}" for each in (1, 2))
OFF = '{"version": "1.0.0", "state": "off"}'
TAINT = "node.kubernetes.io/out-of-service"


class Rack(Node):
    """Two nodes, and a fence agent that counts calls."""

    def __init__(self, api: FakeAPI, directory: Path) -> None:
        super().__init__(api)
        self.agent = directory / "agent"
        self._calls = directory / "calls"

    def answers(self, script: str) -> None:
        self.agent.write_text(f"#!/bin/sh\ncat >/dev/null; echo >>{self._calls}; {script}\n")
        self.agent.chmod(0o755)

    def calls(self) -> int:
        return len(self._calls.read_text()) if self._calls.exists() else 0

    def node(self, name: str = "node1") -> dict[str, Any]:
        return self.api.get(NODES, "", name)

    def is_fenced(self) -> bool:
        return any(each["key"] == TAINT for each in self.node().get("spec", {}).get("taints", []))

    def said(self, reason: str) -> str:
        found = [each["message"] for each in self.api.all("/api/v1/events") if each["reason"] == reason]
        return found[0] if found else ""

    async def boots(self, name: str, boot: str, ready: str) -> None:
        def change(obj: dict[str, Any]) -> None:
            obj["status"]["nodeInfo"] = {"bootID": boot}
            obj["status"]["conditions"][0].update(status=ready)

        await self.api.edit(NODES, "", name, change)

    async def loses_the_node(self, *, other_holds: float = 3600) -> dict[str, Any]:
        """Run a machine on node1, then make node1 unreachable; return the pod. ``other_holds``: seconds that node2's Lease is valid."""
        await self.beat()
        other = heartbeat.lease("node2", LEASE_NAMESPACE, Verdict(accelerated=False, reason="test"), "1990-01-01T00:00:00Z")
        other["spec"]["leaseDurationSeconds"] = other_holds
        await self.api.put(LEASES, other)
        pod = await self.running()
        await self.boots("node1", ONE, "Unknown")
        return pod


@asynccontextmanager
async def rack(api: FakeAPI, directory: Path) -> AsyncIterator[Rack]:
    found = Rack(api, directory)
    flags = (f"--fence-agent={found.agent}", "--fence-delay=500ms", "--fence-timeout=5s")
    async with working(api, "--no-leader-elect", *flags, elapsed=found.elapsed):
        judged = api.authorize
        assert judged is not None
        api.authorize = lambda method, path, query: (method in {"GET", "PUT"} and path.startswith(NODES)) or judged(method, path, query)
        yield found


async def passes(found: Rack, claim: Callable[[], Any], what: str) -> None:
    async with asyncio.timeout(30):
        while not claim():
            found.now += HOLDS / 4
            await asyncio.sleep(0.05)
    assert claim(), what


async def test_a_machine_of_a_fenced_node_starts_elsewhere(api: FakeAPI, tmp_path: Path) -> None:
    async with rack(api, tmp_path) as found:
        found.answers(f"echo '{OFF}'")
        pod = await found.loses_the_node()
        await passes(found, found.is_fenced, "the taint")
        assert found.calls() == 1
        assert found.node()["metadata"]["annotations"]["kubevirt.io/fenced-by"].startswith("virt-controller with agent at ")
        await found.until(lambda: found.said("NodeFenced"), "an event")
        again = await found.pod(2)
        assert {name_of(each) for each in api.all(PODS)} == {name_of(pod), name_of(again)}, "it does not wait for the end of its pod"
        await found.boots("node1", TWO, "True")
        await found.until(lambda: not found.is_fenced(), "the end of the taint")
        assert "kubevirt.io/fenced-by" not in found.node()["metadata"]["annotations"]
        await found.until(lambda: found.said("NodeUnfenced"), "an event")


async def test_a_failed_call_is_reported_and_repeated(api: FakeAPI, tmp_path: Path) -> None:
    async with rack(api, tmp_path) as found:
        found.answers('echo \'{"version": "1.0.0", "msg": "board does not answer"}\'; exit 1')
        await found.loses_the_node()
        await passes(found, lambda: found.said("FencingFailed"), "an event")
        assert "board does not answer" in found.said("FencingFailed")
        assert "kubectl virt fence node1 --off" in found.said("FencingFailed")
        assert not found.is_fenced()
        found.answers(f"echo '{OFF}'")
        await found.until(found.is_fenced, "the taint")


async def test_a_call_ends_when_the_node_reports_again(api: FakeAPI, tmp_path: Path) -> None:
    async with rack(api, tmp_path) as found:
        found.answers(f"sleep 4; echo >>{tmp_path}/off; echo '{OFF}'")
        await found.loses_the_node()
        await passes(found, found.calls, "a call")
        await found.boots("node1", ONE, "True")
        await found.until(lambda: "reports again" in found.said("FencingFailed"), "an event")
        assert (found.is_fenced(), (tmp_path / "off").exists()) == (False, False)


async def test_a_kubelet_of_the_same_boot_refutes_the_agent(api: FakeAPI, tmp_path: Path) -> None:
    """The kubelet's report comes just before the answer, and no informer has it yet."""
    async with rack(api, tmp_path) as found:
        found.answers(f"while ! test -e {tmp_path}/go; do sleep 0.05; done; echo '{OFF}'")
        await found.loses_the_node()
        await passes(found, found.calls, "a call")
        api.drop_events(on=True)
        await found.boots("node1", ONE, "True")
        (tmp_path / "go").touch()
        await found.until(lambda: "same boot ID" in found.said("FencingFailed"), "an event")
        assert not found.is_fenced()


@pytest.mark.parametrize("restarted", [True, False])
async def test_the_node_is_judged_as_it_is_after_the_call(api: FakeAPI, tmp_path: Path, restarted: bool) -> None:
    """Another client taints it during the call, or the node starts again."""
    async with rack(api, tmp_path) as found:
        found.answers(f"while ! test -e {tmp_path}/go; do sleep 0.05; done; echo '{OFF}'")
        await found.loses_the_node()
        await passes(found, found.calls, "a call")
        api.drop_events(on=True)
        await api.edit(NODES, "", "node1", lambda obj: obj.setdefault("spec", {}).update(taints=[{"key": "other", "effect": "NoExecute"}]))
        if restarted:
            await found.boots("node1", TWO, "True")
        (tmp_path / "go").touch()
        await found.until(lambda: found.said("NodeFenced"), "an event")
        assert ("has started again" in found.said("NodeFenced"), found.is_fenced(), found.calls()) == (restarted, not restarted, 1)
        assert found.node()["spec"]["taints"][0]["key"] == "other"


async def test_a_node_that_virt_handler_left_has_no_vote(api: FakeAPI, tmp_path: Path) -> None:
    """Its kubelet reports, but its Lease is old. So the only node with virt-handler is silent."""
    async with rack(api, tmp_path) as found:
        found.answers(f"echo '{OFF}'")
        await found.loses_the_node(other_holds=HOLDS)
        await passes(found, lambda: found.said("FencingRefused"), "an event")
        assert (found.said("FencingRefused").split(",")[0], found.calls()) == ("1 of 1 nodes with virt-handler do not report", 0)


async def test_most_nodes_silent_means_that_none_is_fenced(api: FakeAPI, tmp_path: Path) -> None:
    async with rack(api, tmp_path) as found:
        found.answers(f"echo '{OFF}'")
        await found.loses_the_node(other_holds=HOLDS)
        await found.boots("node2", ONE, "Unknown")
        await passes(found, lambda: found.said("FencingRefused"), "an event")
        assert found.said("FencingRefused").startswith("2 of 2 nodes")
        assert (found.calls(), found.is_fenced()) == (0, False)


async def test_a_silent_kubelet_alone_fences_nothing(api: FakeAPI, tmp_path: Path) -> None:
    async with rack(api, tmp_path) as found:
        found.answers(f"echo '{OFF}'")
        await found.loses_the_node()
        async with found.handler_living():
            await asyncio.sleep(HOLDS * 2.2)
            assert (found.calls(), found.is_fenced()) == (0, False)
