from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator

import pytest

from apiserver.apis.virt import guards
from apiserver.apis.virt.places import names
from apiserver.client.rest import Client
from tests.component.guardians import LEASES, NAMESPACE, NODES, POD, VOTERS, Side, World
from tests.damage import never_again
from tests.fakes.kubeapi import FakeAPI

pytestmark = pytest.mark.timeout(300)
NEVER = 1e9
OTHER_POD = "00000000-0000-4000-8000-00000000000b"


@pytest.fixture
async def world() -> AsyncIterator[World]:
    api = FakeAPI()
    async with api.serving() as config, Client(config, user_agent="test") as client:
        for name in VOTERS:
            ready = [{"type": "Ready", "status": "Unknown"}]
            await api.put(NODES, {"metadata": {"name": name}, "status": {"conditions": ready}})
        made = World(api, client)
        made.sides["a"].pods.add(POD)
        await made.pass_time(90)
        assert made.sealed_at is None
        assert made.sides["a"].pods == {POD}
        yield made


def promise(world: World, name: str = "a") -> guards.Promise:
    found = guards.promise_of(world.sides[name].lease)
    assert found is not None
    return found


async def test_a_cut_off_node_ends_its_guests_before_the_seal(world: World) -> None:
    side, cut_at = world.sides["a"], world.now
    side.link.up = False
    with never_again("two QEMU"):
        await world.pass_time(70, until=lambda: world.sealed_at is not None)
    assert side.killed_at is not None
    assert world.sealed_at is not None
    assert 30 <= side.killed_at - cut_at <= 41
    assert side.killed_at < world.sealed_at <= cut_at + 58
    assert promise(world).pods == (POD,)
    assert guards.sealed_pods(world.api.all(LEASES)) == {"a": frozenset({POD})}


async def test_an_outage_of_kube_apiserver_ends_no_guest(world: World) -> None:
    for each in world.sides.values():
        each.link.up = False
    world.controller_up = False
    await world.pass_time(400)
    assert world.sides["a"].pods == {POD}
    for each in world.sides.values():
        each.link.up = True
    world.controller_up = True
    await world.pass_time(120)
    assert (world.sides["a"].pods, world.sealed_at) == ({POD}, None)


async def test_a_majority_that_is_cut_off_keeps_its_guests(world: World) -> None:
    """No restart is possible then: the one voter that reports is no majority."""
    for name in ("a", "b"):
        world.sides[name].link.up = False
    await world.pass_time(200)
    assert (world.sides["a"].pods, world.sealed_at) == ({POD}, None)


async def test_cut_off_voters_that_do_not_hear_each_other_end_guests(world: World) -> None:
    world.apart = {frozenset({"a", "b"})}
    for name in ("a", "b"):
        world.sides[name].link.up = False
    await world.pass_time(200)
    assert (world.sides["a"].pods, world.sealed_at) == (set(), None)


async def test_a_node_whose_kubelet_reports_is_not_sealed(world: World) -> None:
    await world.api.edit(NODES, "", "a", lambda node: node["status"]["conditions"][0].update(status="True"))
    world.sides["a"].runs = False
    await world.pass_time(100)
    assert world.sealed_at is None


async def test_a_dead_guardian_is_sealed_only_after_the_second_killer(world: World) -> None:
    """virt-launcher ends its guest by the file's deadline."""
    side = world.sides["a"]
    side.runs = False
    await world.pass_time(42)
    assert world.sealed_at is None
    assert side.file.until is not None
    assert side.file.until + guards.DEFAULT.kill <= world.now + 1
    side.pods.clear()
    await world.pass_time(30, until=lambda: world.sealed_at is not None)
    assert world.sealed_at is not None


async def test_a_returned_node_ends_listed_guests_and_is_unsealed(world: World) -> None:
    side = world.sides["a"]
    side.link.up = False
    await world.pass_time(70, until=lambda: world.sealed_at is not None)
    side.pods.add(OTHER_POD)
    side.link.up = True
    await world.pass_time(1)
    assert side.pods == set()
    side.pods.add(POD)
    side.unkillable = True
    side.killer.doom(frozenset({POD}))
    before = len([each for each in world.api.writes if names.guardian_lease("a") in each[1]])
    for _ in range(5):
        world.now += 1
        side.killer.look()
        await side.guardian.step()
    assert len([each for each in world.api.writes if names.guardian_lease("a") in each[1]]) == before
    side.unkillable = False
    await world.pass_time(8)
    assert not side.is_sealed
    side.pods.add("00000000-0000-4000-8000-00000000000c")
    await world.pass_time(60)
    assert side.pods == {"00000000-0000-4000-8000-00000000000c"}


async def test_a_new_guardian_keeps_the_promise_of_the_last_one(world: World) -> None:
    side = world.sides["a"]
    side.link.up = False
    await world.pass_time(20)
    side.start()
    with never_again("two QEMU"):
        await world.pass_time(70, until=lambda: world.sealed_at is not None)
    assert side.killed_at is not None
    assert world.sealed_at is not None


async def test_a_guardian_that_ends_takes_its_promise_back(world: World) -> None:
    side = world.sides["a"]
    await side.guardian.withdraw()
    side.runs = False
    assert (side.file.until, side.killer.until) == (None, None)
    assert promise(world).withdrawn
    await world.pass_time(100)
    assert (side.pods, world.sealed_at) == ({POD}, None)


async def begin_again(side: Side, *, promises: bool = True) -> None:
    await side.guardian.withdraw()
    side.start(promises=promises)


@pytest.mark.parametrize("lands_after", [None, NEVER])
async def test_a_first_renewal_that_fails_is_no_promise(world: World, lands_after: float | None) -> None:
    side = world.sides["a"]
    await begin_again(side)
    side.link.refuses, side.link.lands_after = lands_after is None, lands_after
    await world.pass_time(100)
    assert (side.pods, side.killed_at, side.file.until) == ({POD}, None, None)
    side.link.refuses, side.link.lands_after = False, None
    await world.pass_time(70)
    assert side.file.until is not None
    assert side.file.until > world.now
    assert not promise(world).withdrawn


async def test_a_refused_first_promise_is_forgotten(world: World) -> None:
    """The write before it, without a promise, succeeded."""
    side = world.sides["a"]
    await begin_again(side)
    while not side.guardian.state.proven:
        await side.guardian.step()
    side.link.refuses = True
    await side.guardian.step()
    assert (side.file.until, side.killer.until, side.guardian.state.confirmed) == (None, None, None)
    await world.pass_time(100)
    assert side.pods == {POD}


async def test_a_refusal_does_not_extend_a_promise(world: World) -> None:
    side, since = world.sides["a"], world.now
    side.link.refuses = True
    with never_again("two QEMU"):
        await world.pass_time(70, until=lambda: world.sealed_at is not None)
    assert side.killed_at is not None
    assert 35 <= side.killed_at - since <= 41
    assert world.sealed_at is not None


@pytest.mark.parametrize("lands_after", [None, NEVER])
async def test_writes_that_fail_for_all_end_no_guest(world: World, lands_after: float | None) -> None:
    """Etcd without space, or a broken webhook for all writes."""
    for each in world.sides.values():
        each.link.refuses, each.link.lands_after = lands_after is None, lands_after
    world.controller_up = False
    await world.pass_time(400)
    assert world.sides["a"].pods == {POD}
    for each in world.sides.values():
        each.link.refuses, each.link.lands_after = False, None
    world.controller_up = True
    await world.pass_time(120)
    assert (world.sides["a"].pods, world.sealed_at) == ({POD}, None)
    assert all(promise(world, name).beats for name in VOTERS)


@pytest.mark.parametrize("starts", [False, True])
async def test_no_write_in_flight_outlasts_a_withdrawal(world: World, starts: bool) -> None:
    """``starts``: of a second guardian, from the withdrawn version, and of the promise; else a first one's."""
    side = world.sides["a"]
    if starts:
        await begin_again(side)
        while not side.guardian.state.proven:
            await side.guardian.step()
    side.link.lands_after = 5.0
    world.now += 4
    while not side.link.late:
        await side.guardian.step()
    side.link.lands_after = None
    await side.guardian.withdraw()
    side.runs = False
    world.now += 10
    await side.link.deliver()
    assert promise(world).withdrawn
    await world.pass_time(100)
    assert (side.pods, side.file.until, world.sealed_at) == ({POD}, None, None)


async def test_a_late_first_lease_does_not_outlast_a_withdrawal(world: World) -> None:
    side = world.sides["a"]
    await side.guardian.withdraw()
    await world.api.remove(LEASES, NAMESPACE, names.guardian_lease("a"))
    side.file.write(world.now + 40)
    side.start()
    await side.guardian.step()
    side.link.lands_after = 5.0
    await side.guardian.step()
    assert side.link.late
    side.link.lands_after = None
    await side.guardian.withdraw()
    world.now += 10
    await side.link.deliver()
    assert promise(world).withdrawn


async def test_a_withdrawal_removes_the_seal_of_ended_guests(world: World) -> None:
    side = world.sides["a"]
    side.link.up = False
    await world.pass_time(70, until=lambda: world.sealed_at is not None)
    side.pods.add(POD)
    side.start()
    side.link.up = side.unkillable = True
    await side.guardian.step()
    thread = threading.Thread(target=side.killer.run)
    thread.start()
    try:
        async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
            tasks.create_task(side.guardian.withdraw())
            await asyncio.sleep(1.5)
            assert side.is_sealed
            side.unkillable = False
    finally:
        side.killer.stop()
        thread.join()
    assert (side.pods, side.is_sealed, side.file.until) == (set(), False, None)
    assert promise(world).withdrawn


async def test_a_late_renewal_moves_the_seal(world: World) -> None:
    side = world.sides["a"]
    side.link.lands_after = 45.0
    await world.pass_time(10)
    side.link.up = False
    with never_again("two QEMU"):
        await world.pass_time(150, until=lambda: world.sealed_at is not None)
    assert world.sealed_at is not None


async def test_a_guardian_with_too_few_voters_is_refused(world: World) -> None:
    for name in ("a", "b"):
        world.sides[name].runs = False
    await world.pass_time(100)
    told = await refusal(world, "SealRefused")
    assert "only 1 of the 3 voters (a, b, c) report" in told
    assert "kubectl virt fence a --off" in told


async def test_a_virtual_node_votes_but_its_guests_run_on(world: World) -> None:
    """``b`` is one of the two voters that report."""
    a, b = world.sides["a"], world.sides["b"]
    b.pods.add(OTHER_POD)
    for each in (a, b):
        await begin_again(each, promises=False)
    await world.pass_time(30)
    a.link.up = False
    await world.pass_time(100)
    assert (a.pods, world.sealed_at) == ({POD}, None)
    told = await refusal(world, "VirtualNode")
    assert "promises nothing on a virtual machine" in told
    assert "With a fence agent, they restart. If you are certain that the node is off: kubectl virt fence a --off" in told
    a.link.up = True
    await begin_again(a)
    await world.pass_time(30)
    a.link.up = False
    await world.pass_time(70, until=lambda: world.sealed_at is not None)
    assert (a.pods, b.pods) == (set(), {OTHER_POD})
    assert world.sealed_at is not None


async def refusal(world: World, reason: str) -> str:
    told: list[str] = []
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(world.recorder.run())
        while not told:
            await asyncio.sleep(0.02)
            events = world.api.all("/api/v1/events")
            told = [each["message"] for each in events if each["reason"] == reason and each["involvedObject"]["name"] == "a"]
        writing.cancel()
    return told[0]


@pytest.mark.sample(2, "random partitions of guardians")
@pytest.mark.parametrize("seed", range(6))
async def test_random_partitions_never_run_two_guests(world: World, seed: int) -> None:
    rng = random.Random(seed)
    with never_again("two QEMU"):
        for _ in range(25):
            await world.shake(rng)
            await world.pass_time(rng.choice((3, 9, 25, 60)))
            if not world.sides["a"].pods and not world.sides["a"].is_sealed:
                world.sides["a"].pods.add(POD)


async def test_leases_of_deleted_nodes_cost_one_read_each(world: World) -> None:
    for number in range(40):
        lease = guards.lease(f"old-{number}", NAMESPACE, guards.Promise(voters=VOTERS), "2026-01-01T00:00:00.000000Z", None)
        await world.api.put(LEASES, lease)
    await world.pass_time(70)
    before = len(world.api.requests)
    side = world.sides["a"]
    side.link.up = False
    with never_again("two QEMU"):
        await world.pass_time(70, until=lambda: world.sealed_at is not None)
    assert world.sealed_at is not None
    selectors = [query.get("fieldSelector", "") for _, _, query in world.api.requests]
    assert not [each for each in selectors[before:] if "old-" in each]
    assert len([each for each in selectors if "old-" in each]) == 40


async def test_an_error_about_one_lease_does_not_stop_others(world: World) -> None:
    ready = [{"type": "Ready", "status": "Unknown"}]
    await world.api.put(NODES, {"metadata": {"name": "0"}, "status": {"conditions": ready}})
    await world.api.put(LEASES, guards.lease("0", NAMESPACE, guards.Promise(voters=VOTERS), "2026-01-01T00:00:00.000000Z", None))

    world.api.authorize = lambda method, path, _: method != "PUT" or not path.endswith("/virt-guardian-0")
    await world.pass_time(10)
    world.sides["a"].runs = False
    world.sides["a"].pods.clear()
    await world.pass_time(70, until=lambda: world.sealed_at is not None)
    assert world.sealed_at is not None
    assert world.api.forbidden


async def test_replicas_forget_the_beats_of_others(world: World) -> None:
    await world.api.edit(
        LEASES, NAMESPACE, guards.BEATS_LEASE, lambda obj: obj["metadata"]["annotations"].update({f"{guards.BEAT_PREFIX}old": "1"})
    )
    for _ in range(3):
        await world.sealing.beat()
        world.now += 400
    found = world.api.get(LEASES, NAMESPACE, guards.BEATS_LEASE)["metadata"]["annotations"]
    assert set(found) == {f"{guards.BEAT_PREFIX}replica"}
