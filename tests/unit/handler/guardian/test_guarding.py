from __future__ import annotations

import asyncio
import copy
import itertools
from collections.abc import Mapping

import pytest

from apiserver.apis.meta import errors
from apiserver.apis.meta.objects import Object, name_of
from apiserver.apis.meta.resources import Resource
from apiserver.apis.virt import guards
from apiserver.apis.virt.guards import Promise
from apiserver.client.rest import TransportError
from controller.runtime.clock import SystemClock
from handler.guardian.guarding import Guardian, Settings
from handler.guardian.killer import Killer
from tests.unit.controller.virtualtime import in_virtual_time

VOTERS = ("a", "b", "c")
OTHER_VOTERS = ("a", "d", "e")
TIMES = guards.DEFAULT


class Storage:
    """The Leases in memory; ``write_seconds``: from the send of a write to its answer, which ``loses`` keeps back."""

    def __init__(self) -> None:
        self.leases: dict[str, Object] = {}
        self.versions = itertools.count(1)
        self.write_seconds = 0.0
        self.loses = self.is_away = False

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Object:
        if self.is_away:
            raise TransportError("no answer")
        if name not in self.leases:
            raise errors.NotFound(name)
        return copy.deepcopy(self.leases[name])

    async def create(self, resource: Resource, obj: Object, namespace: str | None = None) -> Object:
        return await self.update(resource, obj)

    async def update(self, resource: Resource, obj: Object) -> Object:
        stored = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(next(self.versions))}}
        self.leases[name_of(obj)] = stored
        await asyncio.sleep(self.write_seconds)
        if self.loses:
            raise TransportError("no answer")
        return copy.deepcopy(stored)


class Node:
    """Node a, with a guardian; ``attesting`` answers after ``ask_seconds``."""

    def __init__(self) -> None:
        self.storage = Storage()
        self.until: float | None = None
        self.ask_seconds = 0.0
        self.attesting: frozenset[str] = frozenset()
        self.killer = Killer(self.now, lambda _: ())

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def read(self) -> float | None:
        return self.until

    def write(self, until: float | None) -> None:
        self.until = until

    def guardian(self, voters: tuple[str, ...] = VOTERS, *, promises: bool = True) -> Guardian:
        settings = Settings("a", "ns", voters, "boot", promises=promises)
        return Guardian(self.storage, settings, self.killer, self, tuple, SystemClock(), self.now, self.ask)

    async def ask(self, voters: Mapping[str, Promise]) -> frozenset[str]:
        await asyncio.sleep(self.ask_seconds)
        return self.attesting

    @property
    def promise(self) -> Promise:
        found = guards.promise_of(self.storage.leases["virt-guardian-a"])
        assert found is not None
        return found

    async def promising(self) -> Guardian:
        guardian = self.guardian()
        while guardian.state.confirmed is None:
            await guardian.step()
        return guardian


@in_virtual_time
async def test_a_promise_counts_from_the_send_not_the_answer() -> None:
    node = Node()
    node.storage.write_seconds = 2.0
    guardian = await node.promising()
    assert (node.now(), node.until) == (4.0, 2.0 + TIMES.promise)
    await asyncio.sleep(await guardian.step())
    sent = node.now()
    await guardian.step()
    assert node.now() == sent + 2
    assert node.until == node.killer.until == sent + TIMES.promise


@in_virtual_time
async def test_a_renewal_found_by_a_read_counts_from_its_send() -> None:
    node = Node()
    guardian = await node.promising()
    await asyncio.sleep(await guardian.step())
    sent = node.now()
    node.storage.write_seconds, node.storage.loses = 2.0, True
    await guardian.step()
    assert node.until == TIMES.promise
    await guardian.step()
    assert guardian.state.resolved
    assert node.until == node.killer.until == sent + TIMES.promise == node.now() - 2 + TIMES.promise


@in_virtual_time
async def test_an_attestation_counts_from_the_question() -> None:
    node = Node()
    guardian = await node.promising()
    await asyncio.sleep(25)
    node.ask_seconds, node.attesting = 2.0, frozenset({"b", "c"})
    await guardian.ask()
    assert node.now() == 27
    assert node.until == node.killer.until == 25 + TIMES.promise


@in_virtual_time
async def test_a_new_guardian_does_not_attest_at_once() -> None:
    """The one before it may have sent a renewal until now."""
    guardian = Node().guardian()
    assert not guardian.is_cut_off()
    await asyncio.sleep(TIMES.cut_off - 0.1)
    assert not guardian.is_cut_off()
    await asyncio.sleep(0.1)
    assert guardian.is_cut_off()


@pytest.mark.parametrize(
    ("attesting", "counts"),
    [("de", False), ("bc", False), ("bd", True)],
)
@in_virtual_time
async def test_voters_of_the_stored_lease_must_attest_too(attesting: str, counts: bool) -> None:
    """A new guardian has other voters, and is cut off after it read the Lease."""
    node = Node()
    await node.promising()
    guardian = node.guardian(OTHER_VOTERS)
    await guardian.step()
    await asyncio.sleep(TIMES.cut_off)
    node.attesting = frozenset(attesting)
    await guardian.ask()
    assert node.until == TIMES.promise + (TIMES.cut_off if counts else 0)


async def pass_steps(guardian: Guardian, seconds: float) -> None:
    until = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < until:
        await asyncio.sleep(await guardian.step())


@in_virtual_time
async def test_a_virtual_node_promises_and_attests_nothing() -> None:
    node = Node()
    guardian = node.guardian(promises=False)
    await pass_steps(guardian, 30)
    assert (node.promise.withdrawn, node.promise.virtual, node.until, node.killer.until) == (True, True, None, None)
    assert guardian.state.confirmed is None
    assert next(node.storage.versions) == 9, "it writes every 4 s"
    await asyncio.sleep(TIMES.cut_off + 1)
    assert not guardian.is_cut_off()


@in_virtual_time
async def test_a_virtual_node_takes_an_earlier_promise_back() -> None:
    """The deadline stays until that is written."""
    node = Node()
    await node.promising()
    deadline, guardian = node.until, node.guardian(promises=False)
    assert (node.killer.until, deadline) == (TIMES.promise, TIMES.promise)
    node.storage.is_away = True
    await pass_steps(guardian, 8)
    assert (node.until, node.killer.until) == (deadline, deadline)
    node.storage.is_away = False
    await pass_steps(guardian, 8)
    assert (node.promise.withdrawn, node.until, node.killer.until, guardian.state.confirmed) == (True, None, None, None)
