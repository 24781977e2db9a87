from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.meta import errors, times
from apiserver.apis.virt.lifecycle import departure
from handler.network.namespaces import CommandFailed
from handler.network.setup import NotInPod
from handler.reconcilers.migrations import side_plan
from handler.relays.outgoing import Destination
from launcher.protocol import messages
from tests.component.handler.world import EVENTS, MIGS, VMS, Handler, World, a_world, eventually, relay
from tests.fakes.launcher import FakeLauncher
from tests.unit.handler.reconcilers.builders import a_migration, a_request, an_operation


class Scene:
    def __init__(self, world: World, source: FakeLauncher, target: FakeLauncher) -> None:
        self.world, self.source, self.target = world, source, target

    def phase(self) -> str:
        return str(self.world.api.get(MIGS, "default", "m")["status"]["phase"])

    def state(self) -> str:
        known = self.source.status.migration_of("mig-1")
        return known.state if known else ""

    async def begin(self, **status: Any) -> None:
        migration = a_migration("PreparingTarget", **status)
        del migration["metadata"]["resourceVersion"]
        migration["metadata"]["finalizers"] = ["kubevirt.io/migration"]
        await self.world.record(migration)
        await self.world.api.put(MIGS, {"apiVersion": "kubevirt.io/v1alpha1", "kind": "Migration", **migration})

    def guest(self) -> tuple[str, str]:
        status = self.world.api.get(VMS, "default", "testvm")["status"]
        ready = [each["status"] for each in status.get("conditions") or () if each["type"] == "Ready"]
        return str((status.get("domain") or {}).get("state")), "".join(ready)

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.world.api.get(MIGS, "default", "m")["status"]
        return found

    async def try_again(self, pod_uid: str = "pod-3") -> None:
        self.target = await self.world.launcher(pod_uid)
        for changes in (
            {"phase": "Pending", "attempt": 2, "targetNode": None, "targetPod": None, "targetPodUID": None, "targetAddress": None},
            {"phase": "PreparingTarget", "targetNode": "n2", "targetPod": "p3", "targetPodUID": pod_uid},
        ):
            await self.world.api.edit(MIGS, "default", "m", lambda obj, changes=changes: obj["status"].update(changes))  # type: ignore[misc]  # a default binds the changes

    def arrive(self, uid: str = "mig-1") -> None:
        """Report on the target, as libvirt does after the copy, that the domain is complete and paused."""
        domain = self.source.status.domain
        assert domain is not None
        self.target.change(domain=replace(domain, state="paused", reason="user"))
        self.target.migration(uid, "incoming", "arrived")

    def leave(self, uid: str = "mig-1") -> None:
        """Report on the source, as libvirt does at the end, that the migration succeeded and the domain is gone."""
        self.source.migration(uid, "outgoing", "succeeded")
        self.source.end("migrated")

    def move(self) -> None:
        self.arrive()
        self.leave()

    def at_target(self) -> str:
        domain = self.target.status.domain
        return domain.state if domain is not None else ""

    def starts(self) -> int:
        return self.source.starts + self.target.starts


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with a_world(tmp_path) as world:
        await world.vm()
        source, target = await world.launcher("pod-1"), await world.launcher("pod-2")
        async with world.handler("n"):
            await eventually(lambda: world.status()["phase"] == "Running")
        yield Scene(world, source, target)


async def both(stack: AsyncExitStack, scene: Scene) -> tuple[Handler, Handler]:
    return await stack.enter_async_context(scene.world.handler("n")), await stack.enter_async_context(scene.world.handler("n2"))


async def test_a_migration_moves_the_machine_and_then_succeeds(scene: Scene) -> None:
    async with AsyncExitStack() as stack:
        source, target = await both(stack, scene)
        await scene.begin()
        await eventually(lambda: scene.state() == "running")
        assert scene.phase() == "Running"
        assert source.relays.open_ones == {"mig-1": ("pod-1", Destination("n2", relay("n2")))}
        assert [(uid, each.pod_uid, each.source_node) for uid, each in target.relays.expected.items()] == [("mig-1", "pod-2", "n")]
        scene.arrive()
        await asyncio.sleep(0.1)
        assert (scene.phase(), scene.at_target()) == ("Running", "paused")
        scene.leave()
        await eventually(lambda: scene.phase() == "Succeeded")
        assert scene.at_target() == "running"
        assert not departure.is_released(scene.world.api.get(MIGS, "default", "m"))
        status = scene.world.status()
        assert (status["nodeName"], status["podName"], status["podUID"]) == ("n2", "p2", "pod-2")
        assert status["phase"] == "Running"
        assert status["migration"]["phase"] == "Succeeded"
        await eventually(lambda: not source.relays.open_ones and not target.relays.expected)
        await eventually(lambda: "Migrated" in scene.world.events())
        scene.target.end("shutdown")
        await eventually(lambda: scene.world.status()["phase"] == "Succeeded")
    assert scene.starts() == 1
    assert target.node.wired == 1


ADDRESSES = ("10.244.1.7", "fd00:10::7")


async def begin_with_addresses(scene: Scene) -> None:
    await scene.begin()
    await scene.world.api.edit(MIGS, "default", "m", lambda obj: obj["status"].update(targetPodIPs=list(ADDRESSES)))
    await eventually(lambda: scene.state() == "running")


async def test_connections_are_forwarded_until_the_old_launcher_ends(scene: Scene) -> None:
    async with AsyncExitStack() as stack:
        source, target = await both(stack, scene)
        await begin_with_addresses(scene)
        scene.arrive()
        await asyncio.sleep(0.1)
        assert source.node.forwarded == []
        scene.leave()
        await eventually(lambda: scene.phase() == "Succeeded" and not source.relays.open_ones)
        assert source.node.forwarded == [ADDRESSES]
        assert target.node.forwarded == []
        link = source.links.get("pod-1")
        assert link is not None
        assert link.connection is not None
        scene.source.exit()
        await eventually(lambda: source.links.get("pod-1") is None)
    assert source.node.forwarded == [ADDRESSES]
    assert scene.world.refused == []


async def test_failed_forwarding_does_not_block_the_migration(scene: Scene) -> None:
    async with AsyncExitStack() as stack:
        source, _ = await both(stack, scene)
        source.node.not_forwarded = CommandFailed("nft failed")
        await begin_with_addresses(scene)
        scene.move()
        await eventually(lambda: scene.phase() == "Succeeded" and scene.at_target() == "running")
        await eventually(lambda: not source.relays.open_ones)
    assert source.node.forwarded == [ADDRESSES]


async def test_launcher_ended_before_forwarding_is_left_alone(scene: Scene) -> None:
    async with AsyncExitStack() as stack:
        source, _ = await both(stack, scene)
        await begin_with_addresses(scene)
        source.relays.fault = OSError("the target cannot be reached")
        scene.move()
        scene.source.exit()
        await eventually(lambda: scene.phase() == "Succeeded")
        await eventually(lambda: source.links.get("pod-1") is None)
    assert source.node.forwarded == []


async def test_source_informed_by_the_api_forwards_connections_too(scene: Scene) -> None:
    async with AsyncExitStack() as stack:
        source, _ = await both(stack, scene)
        await begin_with_addresses(scene)
        source.relays.fault = OSError("the target cannot be reached")
        scene.move()
        await eventually(lambda: scene.phase() == "Succeeded" and source.node.forwarded == [ADDRESSES])


async def test_a_migration_that_is_deleted_lets_the_former_pod_go(scene: Scene) -> None:
    async with AsyncExitStack() as stack:
        source, _ = await both(stack, scene)
        await begin_with_addresses(scene)
        scene.move()
        await eventually(lambda: source.node.forwarded == [ADDRESSES] and scene.phase() == "Succeeded")
        await scene.world.api.remove(MIGS, "default", "m")
        await eventually(lambda: source.links.get("pod-1") is None)


async def test_a_failed_migration_leaves_the_guest_where_it_is(scene: Scene) -> None:
    async with AsyncExitStack() as stack:
        await both(stack, scene)
        await scene.begin()
        await eventually(lambda: scene.state() == "running")
        scene.source.migration("mig-1", "outgoing", "failed", "client socket is closed")
        await eventually(lambda: scene.phase() == "Failed")

    message = scene.world.api.get(MIGS, "default", "m")["status"]["message"]
    assert message.startswith("lost the connection to the target")
    assert "(libvirt: client socket is closed)" in message
    assert scene.world.status()["nodeName"] == "n"


def begun(scene: Scene, uid: str) -> bool:
    known = scene.source.status.migration_of(uid)
    return known is not None and known.state == "running"


async def test_broken_connection_is_followed_by_another_attempt(scene: Scene) -> None:
    async with AsyncExitStack() as stack:
        source, target = await both(stack, scene)
        await scene.begin(attempt=1)
        await eventually(lambda: begun(scene, "mig-1"))
        first = scene.target
        scene.arrive()
        await eventually(lambda: "mig-1" in target.relays.expected)
        scene.source.migration("mig-1", "outgoing", "failed", "client socket is closed")
        await eventually(lambda: bool(scene.status().get("attempts")))
        assert (scene.phase(), "endTime" in scene.status()) == ("Running", False)
        (entry,) = scene.status()["attempts"]
        assert (entry["number"], entry["reason"], entry["targetNode"], entry["targetPod"]) == (1, "ConnectionBroken", "n2", "p2")
        assert entry["message"].startswith("lost the connection to the target")
        await eventually(lambda: not source.relays.open_ones and not target.relays.expected)
        assert scene.state() == "failed"

        began = "2026-01-01T00:00:00Z"
        await scene.world.api.edit(MIGS, "default", "m", lambda obj: obj["status"].update(startTime=began))
        await scene.try_again()
        await eventually(lambda: begun(scene, "mig-1-2"))
        assert scene.status()["startTime"] == began
        assert source.relays.open_ones == {"mig-1-2": ("pod-1", Destination("n2", relay("n2")))}
        assert [(uid, each.pod_uid) for uid, each in target.relays.expected.items()] == [("mig-1-2", "pod-3")]
        scene.arrive("mig-1-2")
        scene.leave("mig-1-2")
        await eventually(lambda: scene.phase() == "Succeeded")
        assert scene.at_target() == "running"
        status = scene.world.status()
        assert (status["nodeName"], status["podUID"], status["migration"]["uid"]) == ("n2", "pod-3", "mig-1")
        assert status["migration"]["startTime"] == began
        assert first.status.domain is not None
        assert first.status.domain.state == "paused"
    assert scene.starts() == 1
    assert not scene.world.refused


async def test_restarted_source_handler_reports_the_broken_connection(scene: Scene) -> None:
    """Its own end broke the connection, because the relays ended with it."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(scene.world.handler("n2"))
        async with scene.world.handler("n"):
            await scene.begin(attempt=1)
            await eventually(lambda: begun(scene, "mig-1"))
        scene.source.migration("mig-1", "outgoing", "failed", "Cannot write data: Broken pipe")
        source = await stack.enter_async_context(scene.world.handler("n"))
        await eventually(lambda: bool(scene.status().get("attempts")))
        assert not source.relays.open_ones
        await scene.try_again()
        await eventually(lambda: begun(scene, "mig-1-2"))
    assert not scene.world.refused


async def test_target_handler_back_after_a_retry_serves_the_retry(scene: Scene) -> None:
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(scene.world.handler("n"))
        async with scene.world.handler("n2"):
            await scene.begin(attempt=1)
            await eventually(lambda: begun(scene, "mig-1"))
        scene.source.migration("mig-1", "outgoing", "failed", "End of file while reading data: Input/output error")
        await eventually(lambda: bool(scene.status().get("attempts")))
        await scene.try_again()
        target = await stack.enter_async_context(scene.world.handler("n2"))
        await eventually(lambda: begun(scene, "mig-1-2"))
        assert list(target.relays.expected) == ["mig-1-2"]
        scene.arrive("mig-1-2")
        scene.leave("mig-1-2")
        await eventually(lambda: scene.phase() == "Succeeded")
    assert not scene.world.refused


@pytest.mark.parametrize("refusal", [errors.Forbidden, errors.Invalid, errors.BadRequest])
async def test_virt_api_without_attempts_gets_a_failed_migration(scene: Scene, refusal: type[errors.StatusError]) -> None:
    async with AsyncExitStack() as stack:
        await both(stack, scene)
        await scene.begin(attempt=1)
        await eventually(lambda: begun(scene, "mig-1"))
        judge = scene.world.api.judge
        assert judge is not None

        def older(node: str, collection: str, old: dict[str, Any], new: dict[str, Any]) -> None:
            if collection == MIGS and (new.get("status") or {}).get("attempts"):
                raise refusal("may not be written by virt-handler of the source")
            judge(node, collection, old, new)

        scene.world.api.judge = older
        scene.source.migration("mig-1", "outgoing", "failed", "client socket is closed")
        await eventually(lambda: scene.phase() == "Failed")


async def test_a_migration_that_a_stop_ended_says_so(scene: Scene) -> None:
    async with AsyncExitStack() as stack:
        await both(stack, scene)
        await scene.begin()
        await eventually(lambda: scene.state() == "running")
        stop = {"action": "Stop", "time": "2026-01-01T00:00:00Z", "runStrategy": "RerunOnFailure"}
        await scene.world.api.edit(VMS, "default", "testvm", lambda obj: obj["status"].update(request=stop))
        await eventually(lambda: any(isinstance(each, messages.Shutdown) for each in scene.source.received))
        scene.source.migration("mig-1", "outgoing", "failed", "client socket is closed")
        await eventually(lambda: scene.phase() == "Failed")

    message = scene.world.api.get(MIGS, "default", "m")["status"]["message"]
    assert message == "the virtual machine was stopped during the migration: stop was requested"
    assert "MigrationFailed" not in scene.world.events()


async def test_deleting_an_unfinished_migration_cancels_it(scene: Scene) -> None:
    async with AsyncExitStack() as stack:
        await both(stack, scene)
        await scene.begin()
        await eventually(lambda: scene.state() == "running")
        await scene.world.api.edit(MIGS, "default", "m", lambda obj: obj["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z"))
        await eventually(lambda: scene.phase() == "Cancelled")

    assert messages.AbortMigration("mig-1") in scene.source.received


def limited(**options: Any) -> dict[str, Any]:
    stamps = [{"phase": "Running", "time": "2020-01-01T00:00:00.000000Z"}]
    more: dict[str, Any] = {
        "phaseTransitionTimestamps": stamps,
        "options": {"completionTimeoutSeconds": 1, **options},
        "targetAddress": relay("n2"),
    }
    migration = a_migration("Running", **more)
    del migration["metadata"]["resourceVersion"]
    return {"apiVersion": "kubevirt.io/v1alpha1", "kind": "Migration", **migration}


async def test_migration_timeout_applies_across_handler_restarts(scene: Scene) -> None:
    scene.source.migration("mig-1", "outgoing", "running")
    async with AsyncExitStack() as stack:
        await both(stack, scene)
        await scene.world.api.put(MIGS, limited())
        await eventually(lambda: scene.phase() == "Failed")

    assert messages.AbortMigration("mig-1") in scene.source.received
    assert "timed out: the migration did not complete within 1 s" in scene.world.api.get(MIGS, "default", "m")["status"]["message"]
    assert scene.starts() == 1


async def test_launcher_that_never_ends_a_migration_loses_its_relays(scene: Scene) -> None:
    async with AsyncExitStack() as stack:
        source, _ = await both(stack, scene)
        await scene.begin()
        await eventually(lambda: scene.state() == "running" and "mig-1" in source.relays.open_ones)
        ended = times.to_rfc3339_micro(datetime.now(UTC) - timedelta(seconds=side_plan.CONFIRM_SECONDS - 1))
        await scene.world.api.edit(MIGS, "default", "m", lambda obj: obj["status"].update(phase="Failed", endTime=ended))
        await eventually(lambda: "mig-1" not in source.relays.open_ones)
        assert scene.state() == "running"


async def test_a_guest_that_may_be_paused_to_arrive_is(scene: Scene) -> None:
    def begun_just_now(obj: dict[str, Any]) -> None:
        now = times.to_rfc3339(datetime.now(UTC) - timedelta(seconds=100))
        obj["status"].update(phaseTransitionTimestamps=[{"phase": "Running", "time": now}])

    scene.source.migration("mig-1", "outgoing", "running")
    migration = limited(allowPause=True, completionTimeoutSeconds=60)
    begun_just_now(migration)
    async with AsyncExitStack() as stack:
        await both(stack, scene)
        await scene.world.api.put(MIGS, migration)
        await eventually(lambda: messages.PauseForMigration("mig-1") in scene.source.received)
        assert messages.AbortMigration("mig-1") not in scene.source.received
        await eventually(lambda: "MigrationPaused" in scene.world.events())
        await asyncio.sleep(0.1)
        told = [each for each in scene.world.api.all(EVENTS) if each["reason"] == "MigrationPaused"]
        assert sorted((each["involvedObject"]["kind"], each["count"]) for each in told) == [("Migration", 1), ("VirtualMachine", 1)]
        domain = scene.source.status.domain
        assert domain is not None
        scene.source.change(domain=replace(domain, state="paused", reason="user"))
        await eventually(lambda: scene.guest() == ("paused", "False"))
        scene.source.change(domain=replace(domain, state="running", reason="unpaused"))
        scene.source.migration("mig-1", "outgoing", "failed", "it did not arrive")
        await eventually(lambda: scene.guest() == ("running", "True"))


async def test_a_launcher_is_told_of_the_policy(scene: Scene) -> None:
    async with AsyncExitStack() as stack:
        await both(stack, scene)
        await scene.world.api.put(MIGS, limited(completionTimeoutSeconds=1 << 40, bandwidth="5Mi", parallelConnections=2))
        await eventually(lambda: scene.state() == "running")
    assert [each for each in scene.source.received if isinstance(each, messages.Migrate)] == [
        messages.Migrate("mig-1", 5 << 20, parallel_connections=2, relays_disks=True, relays_made_disks=True)
    ]


async def test_a_migration_made_again_under_its_name_is_another_one(scene: Scene) -> None:
    """Its relays end, although no pass sees its end while a pass waits for a launcher or the other node."""

    def another(migration: dict[str, Any]) -> None:
        migration["metadata"]["uid"] = "mig-2"
        migration["spec"]["selector"]["name"] = "another"
        migration["status"].update(phase="TargetReady", sourcePod="another", targetPodUID="pod-3")

    async with AsyncExitStack() as stack:
        source, target = await both(stack, scene)
        await scene.begin()
        await eventually(lambda: scene.state() == "running")
        await scene.world.api.edit(MIGS, "default", "m", another)
        await eventually(lambda: not source.relays.open_ones and not target.relays.expected)
        await asyncio.sleep(0.2)
        assert [each for each in scene.source.received if isinstance(each, messages.Migrate)] == [
            messages.Migrate("mig-1", relays_disks=True, relays_made_disks=True)
        ]
        assert scene.world.api.get(MIGS, "default", "m")["status"]["phase"] == "TargetReady"


async def test_restarted_source_handler_learns_the_outcome(scene: Scene) -> None:
    async with scene.world.handler("n2"):
        async with scene.world.handler("n"):
            await scene.begin()
            await eventually(lambda: scene.state() == "running")
        # Its relays died with it, so libvirt gives up.
        scene.source.migration("mig-1", "outgoing", "failed", "the connection was closed")
        async with scene.world.handler("n"):
            await eventually(lambda: scene.phase() == "Failed")

    assert scene.starts() == 1


async def test_source_handler_restarted_before_asking_continues(scene: Scene) -> None:
    async with scene.world.handler("n2"):
        async with scene.world.handler("n") as first:
            first.relays.fault = None
            await scene.begin()
            await eventually(lambda: scene.phase() in ("TargetReady", "Running"))
        async with scene.world.handler("n"):
            await eventually(lambda: scene.state() == "running")
            scene.move()
            await eventually(lambda: scene.phase() == "Succeeded")


async def test_restarted_target_handler_takes_over_an_arrived_guest(scene: Scene) -> None:
    async with scene.world.handler("n"):
        async with scene.world.handler("n2"):
            await scene.begin()
            await eventually(lambda: scene.state() == "running")
        scene.move()
        async with scene.world.handler("n2"):
            await eventually(lambda: scene.phase() == "Succeeded")

    assert scene.world.status()["nodeName"] == "n2"


async def test_target_handler_restarted_between_writes_completes_them(scene: Scene) -> None:
    async with scene.world.handler("n"):
        async with scene.world.handler("n2"):
            await scene.begin()
            await eventually(lambda: scene.state() == "running")
        scene.move()
        scene.target.migration("mig-1", "incoming", "succeeded")
        await scene.world.api.edit(VMS, "default", "testvm", lambda vm: vm["status"].update(nodeName="n2", podName="p2", podUID="pod-2"))
        async with scene.world.handler("n2"):
            await eventually(lambda: scene.phase() == "Succeeded")

    assert scene.world.status()["podUID"] == "pod-2"


async def test_a_way_that_cannot_be_opened_fails_the_migration(scene: Scene) -> None:
    async with AsyncExitStack() as stack:
        source, _ = await both(stack, scene)
        source.relays.fault = OSError("no route to host")
        await scene.begin()
        await eventually(lambda: scene.phase() == "Failed")

    assert "no route to host" in scene.world.api.get(MIGS, "default", "m")["status"]["message"]
    assert scene.state() == ""


async def test_a_machine_that_is_elsewhere_by_now_is_not_taken_over(scene: Scene) -> None:
    async with AsyncExitStack() as stack:
        await both(stack, scene)
        await scene.begin()
        await eventually(lambda: scene.state() == "running")
        await scene.world.api.edit(VMS, "default", "testvm", lambda vm: vm["status"].update(nodeName="n3", podUID="pod-9"))
        writes = len(scene.world.api.writes)
        scene.move()
        await eventually(lambda: scene.at_target() == "running")
        await asyncio.sleep(0.2)
        assert not [path for _, path, _ in scene.world.api.writes[writes:] if "virtualmachines" in path]
        assert scene.phase() == "Running"
        assert (scene.world.status()["nodeName"], scene.world.status()["podUID"]) == ("n3", "pod-9")


async def test_a_guest_that_its_user_paused_arrives_paused(scene: Scene) -> None:
    async with AsyncExitStack() as stack:
        await both(stack, scene)
        await scene.begin()
        await eventually(lambda: scene.state() == "running")
        await scene.world.api.edit(VMS, "default", "testvm", lambda vm: vm["status"].update(request=a_request("Pause")))
        await asyncio.sleep(0.1)
        scene.move()
        await eventually(lambda: scene.phase() == "Succeeded")

    assert messages.ReleaseMigration("mig-1", paused=True) in scene.target.received
    assert scene.at_target() == "paused"


async def test_a_target_that_cannot_be_told_reads_it_in_the_migration(scene: Scene) -> None:
    async with AsyncExitStack() as stack:
        source, _ = await both(stack, scene)
        await scene.begin()
        await eventually(lambda: scene.state() == "running")
        source.relays.fault = OSError("no route to host")
        scene.move()
        await eventually(lambda: scene.phase() == "Succeeded")

    assert departure.is_released(scene.world.api.get(MIGS, "default", "m"))
    assert scene.at_target() == "running"


async def test_restarted_target_handler_releases_without_the_source(scene: Scene) -> None:
    async with scene.world.handler("n"):
        async with scene.world.handler("n2"):
            await scene.begin()
            await eventually(lambda: scene.state() == "running")
        scene.move()
        await eventually(lambda: departure.is_released(scene.world.api.get(MIGS, "default", "m")))
        assert scene.at_target() == "paused"
    async with scene.world.handler("n2"):
        await eventually(lambda: scene.phase() == "Succeeded")

    assert scene.at_target() == "running"


async def test_restarted_source_handler_reports_the_departure(scene: Scene) -> None:
    async with scene.world.handler("n2"):
        async with scene.world.handler("n"):
            await scene.begin()
            await eventually(lambda: scene.state() == "running")
        scene.move()
        await asyncio.sleep(0.1)
        assert scene.at_target() == "paused"
        async with scene.world.handler("n"):
            await eventually(lambda: scene.phase() == "Succeeded")

    assert scene.at_target() == "running"


def no_api(*_request: object) -> bool:
    raise errors.ServiceUnavailable("out of order")


async def test_without_an_api_server_the_guest_runs_on_all_the_same(scene: Scene) -> None:
    async with AsyncExitStack() as stack:
        await both(stack, scene)
        await scene.begin()
        await eventually(lambda: scene.state() == "running")
        allowed, scene.world.api.authorize = scene.world.api.authorize, no_api
        await scene.world.api.cut()
        scene.move()
        await eventually(lambda: scene.at_target() == "running")
        assert scene.phase() == "Running"
        scene.world.api.authorize = allowed
        await eventually(lambda: scene.phase() == "Succeeded")


async def test_copy_of_a_failed_migration_is_never_released(scene: Scene) -> None:
    async with AsyncExitStack() as stack:
        await both(stack, scene)
        await scene.begin()
        await eventually(lambda: scene.state() == "running")
        scene.arrive()
        scene.source.migration("mig-1", "outgoing", "failed", "the answer was lost")
        await eventually(lambda: scene.phase() == "Failed")
        await asyncio.sleep(0.1)

    assert not [each for each in scene.target.received if isinstance(each, messages.ReleaseMigration)]
    assert scene.at_target() == "paused"


async def test_kvm_guest_is_prepared_only_in_a_pod_with_kvm(scene: Scene) -> None:
    domain = scene.source.status.domain
    assert domain is not None
    async with AsyncExitStack() as stack:
        _, target = await both(stack, scene)
        scene.source.change(domain=replace(domain, type="kvm"))
        await eventually(lambda: scene.world.status()["domain"]["type"] == "kvm")
        await scene.begin()
        await eventually(
            lambda: (
                str(scene.world.api.get(MIGS, "default", "m")["status"].get("message"))
                == "the target on node n2 is not ready: the guest uses KVM, but the target pod has no /dev/kvm"
            )
        )
        assert scene.target.received == []
        target.node.accelerators = {"pod-2": "kvm"}
        await eventually(lambda: scene.state() == "running")
        (prepared,) = (each for each in scene.target.received if isinstance(each, messages.PrepareMigrationTarget))
        assert (prepared.machine.accelerator, prepared.capabilities) == ("kvm", "<kvm/>")


@pytest.mark.parametrize(("lacks", "cards"), [(None, ["default", "lan"]), (NotInPod("the pod has no network"), ["default"])])
async def test_target_is_prepared_for_cards_whose_network_it_has(scene: Scene, lacks: Exception | None, cards: list[str]) -> None:
    def edit(vm: dict[str, Any]) -> None:
        domain = vm["spec"]["domain"]
        found = [{"name": "default"}, {"name": "lan", "network": "lan"}]
        vm["status"]["running"] = {"generation": 1, "domain": domain}
        vm["spec"]["domain"] = {**domain, "devices": {**domain["devices"], "interfaces": found}}

    async with AsyncExitStack() as stack:
        _, target = await both(stack, scene)
        target.node.no_card = lacks
        await scene.world.api.edit(VMS, "default", "testvm", edit)
        await scene.begin()
        await eventually(lambda: scene.state() == "running")
        (prepared,) = (each for each in scene.target.received if isinstance(each, messages.PrepareMigrationTarget))
        assert [each.name for each in prepared.machine.interfaces] == cards
        assert [each["name"] for each in prepared.machine.domain["devices"]["interfaces"]] == cards
        scene.move()
        await eventually(lambda: scene.phase() == "Succeeded")
        assert [each["name"] for each in scene.world.status()["interfaces"]] == ["default"]


async def test_unready_target_is_reported_until_it_is_ready(scene: Scene) -> None:
    async with AsyncExitStack() as stack:
        _, target = await both(stack, scene)
        target.node.no_network = CommandFailed("nft: no such table")
        await scene.begin()

        def message() -> str:
            return str(scene.world.api.get(MIGS, "default", "m")["status"].get("message") or "")

        await eventually(lambda: message() == "the target on node n2 is not ready: nft: no such table")
        assert scene.phase() == "PreparingTarget"
        await eventually(lambda: "MigrationTargetNotReady" in scene.world.events())
        target.node.no_network = None
        await eventually(lambda: scene.state() == "running")
        assert message() == ""
        scene.move()
        await eventually(lambda: scene.phase() == "Succeeded")


async def test_changing_target_errors_cause_few_writes(scene: Scene) -> None:
    scene.world.link_limits = replace(scene.world.link_limits, changes_per_second=1000.0)
    refusals = 0

    def refuse(request: messages.Request) -> tuple[messages.RefusalReason, str] | None:
        nonlocal refusals
        if isinstance(request, messages.PrepareMigrationTarget):
            refusals += 1
            return "Failed", f"excuse number {refusals}"
        return None

    scene.target.instead = refuse

    def message() -> str:
        return str(scene.world.api.get(MIGS, "default", "m")["status"].get("message") or "")

    async with AsyncExitStack() as stack:
        await both(stack, scene)
        await scene.begin()
        began = time.monotonic()
        while refusals < 100:
            known = refusals
            scene.target.change(consoles=known)
            await eventually(lambda known=known: refusals > known)  # type: ignore[misc]  # a default binds the number
        assert "is not ready: excuse number" in message()
        written = [path for method, path, _ in scene.world.api.writes if method == "PUT" and path.endswith("/migrations/m/status")]
        assert len(written) <= scene.world.limits.writes_burst + 1 + (time.monotonic() - began) / scene.world.limits.write_seconds


async def test_target_that_is_never_prepared_sets_cards_up_rarely(scene: Scene) -> None:
    """Otherwise each change of the launcher's status would run programs of the host."""
    scene.world.link_limits = replace(scene.world.link_limits, changes_per_second=1000.0)
    limits = scene.world.limits
    scene.target.instead = lambda _: ("Failed", "an excuse")

    def edit(vm: dict[str, Any]) -> None:
        domain = vm["spec"]["domain"]
        found = [{"name": "default"}, {"name": "lan", "type": "bridge", "network": "lan"}]
        vm["status"]["running"] = {"generation": 1, "domain": domain}
        vm["spec"]["domain"] = {**domain, "devices": {**domain["devices"], "interfaces": found}}

    async with AsyncExitStack() as stack:
        _, target = await both(stack, scene)
        await scene.world.api.edit(VMS, "default", "testvm", edit)
        await scene.begin()
        began = time.monotonic()
        for number in range(60):
            scene.target.change(consoles=number % 8)
            await asyncio.sleep(0.02)
        most = limits.network_tries_burst + 1 + (time.monotonic() - began) / limits.network_seconds
        assert limits.network_tries_burst <= target.node.joined <= most
        await eventually(lambda: "the next change waits" in str(scene.status().get("message")))


async def test_forgetful_target_moves_no_phase_back(scene: Scene) -> None:
    """Otherwise virt-handler would keep trying to write PreparingTarget, which virt-api refuses."""
    async with AsyncExitStack() as stack:
        await both(stack, scene)
        await scene.begin()
        await eventually(lambda: scene.phase() == "Running")
        asked = len(scene.target.received)
        scene.target.instead = lambda _: ("Failed", "I know of nothing")
        scene.target.change(migrations=())
        await eventually(lambda: len(scene.target.received) > asked + 1)
        assert scene.phase() == "Running"


async def test_a_guest_leaves_only_after_its_operations_have_results(scene: Scene) -> None:
    """The target's launcher would be asked for a reset again."""
    reset = an_operation("a", 1)
    await scene.world.api.edit(VMS, "default", "testvm", lambda vm: vm["status"].update(operations=[reset]))
    scene.source.change(operations=(messages.OperationStatus("a", 1, "running"),))
    async with AsyncExitStack() as stack:
        await both(stack, scene)
        await scene.begin()
        await eventually(lambda: scene.phase() == "TargetReady")
        await asyncio.sleep(0.2)
        assert (scene.phase(), scene.state()) == ("TargetReady", "")
        scene.source.change(operations=(messages.OperationStatus("a", 1, "succeeded"),))
        await eventually(lambda: scene.state() == "running")
        scene.move()
        await eventually(lambda: scene.phase() == "Succeeded")
        (over,) = scene.world.status()["operations"]
        await asyncio.sleep(0.2)
    assert over["result"] == "Succeeded"
    assert (scene.source.resets, scene.target.resets) == (0, 0)


async def test_guest_leaves_only_after_its_machine_names_the_migration(scene: Scene) -> None:
    """Until then virt-api takes operations that this copy of the machine may lack."""
    async with AsyncExitStack() as stack:
        await both(stack, scene)
        await scene.begin()
        await scene.world.api.edit(VMS, "default", "testvm", lambda vm: vm["status"]["migration"].update(uid="mig-0"))
        await eventually(lambda: scene.phase() == "TargetReady")
        await asyncio.sleep(0.2)
        assert (scene.phase(), scene.state()) == ("TargetReady", "")
        await scene.world.api.edit(VMS, "default", "testvm", lambda vm: vm["status"]["migration"].update(uid="mig-1"))
        await eventually(lambda: scene.state() == "running")
