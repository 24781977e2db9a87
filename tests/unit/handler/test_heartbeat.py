from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from apiserver.apis.core.resources import SELF_SUBJECT_REVIEWS
from apiserver.apis.meta import errors
from apiserver.apis.virt.places import names
from apiserver.client.rest import Client, TransportError
from handler import heartbeat
from handler.devices.acceleration import Verdict
from tests.unit.controller.virtualtime import in_virtual_time

VERDICT = Verdict(accelerated=False, reason="test")


class Clock:
    def __init__(self) -> None:
        self.time = datetime(2026, 11, 22, 12, 0, 0, tzinfo=UTC)

    def now(self) -> datetime:
        self.time += timedelta(minutes=1)
        return self.time


class Leases:
    """The used part of the client; the first renewal raises ``fault``, if given, or hangs for a TimeoutError."""

    def __init__(self, fault: Exception | None) -> None:
        self._faults: Iterator[Exception | None] = iter((fault,))
        self.asked = 0
        self.written: list[dict[str, Any]] = []
        self.uid = ""
        self.next_uid = ""
        self.reviews = 0
        self.refuses_owners = False

    async def patch(self, _resource: object, name: str, obj: dict[str, Any], namespace: str) -> dict[str, Any]:
        self.asked += 1
        fault = next(self._faults, None)
        if isinstance(fault, TimeoutError):
            await asyncio.Event().wait()
        if fault is not None:
            raise fault
        return await self.create(_resource, obj, namespace, name)

    async def create(self, resource: object, obj: dict[str, Any], namespace: str = "", name: str = "") -> dict[str, Any]:
        if resource == SELF_SUBJECT_REVIEWS:
            self.reviews += 1
            uid, self.uid = self.uid, self.next_uid or self.uid
            return {"status": {"userInfo": {"extra": {names.NODE_CLAIM: ["node1"], names.NODE_UID_CLAIM: [uid]}}}}
        if self.refuses_owners and "ownerReferences" in obj["metadata"]:
            raise errors.Forbidden("cannot set an ownerRef on a resource you can't delete")
        assert (namespace, name or obj["metadata"]["name"]) == ("leases", "virt-handler-node1")
        self.written.append(obj)
        return obj


@pytest.mark.parametrize(
    "fault",
    [
        errors.Forbidden("no"),
        errors.InternalError("etcd is away"),
        TransportError("refused"),
        TimeoutError(),
        errors.NotFound("first"),
        None,
    ],
    ids=lambda fault: type(fault).__name__,
)
async def test_a_renewal_that_fails_is_made_up_for_by_the_next(fault: Exception | None) -> None:
    leases = Leases(fault)
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        beating = tasks.create_task(heartbeat.run(cast(Client, leases), "node1", "leases", lambda: VERDICT, Clock(), renew_seconds=0.02))
        while len(leases.written) < 3:
            await asyncio.sleep(0.005)
        beating.cancel()

    renewed = [each["spec"]["renewTime"] for each in leases.written]
    assert renewed == sorted(set(renewed))
    assert leases.asked == len(renewed) + (fault is not None and not isinstance(fault, errors.NotFound))


@in_virtual_time
async def test_a_renewal_that_hangs_costs_no_lease() -> None:
    leases = Leases(TimeoutError())
    async with asyncio.TaskGroup() as tasks:
        beating = tasks.create_task(heartbeat.run(cast(Client, leases), "node1", "leases", lambda: VERDICT, Clock()))
        while not leases.written:
            await asyncio.sleep(1)
        beating.cancel()
    assert asyncio.get_running_loop().time() < heartbeat.DURATION_SECONDS


async def beats(leases: Leases, count: int) -> list[Any]:
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        beating = tasks.create_task(heartbeat.run(cast(Client, leases), "node1", "leases", lambda: VERDICT, Clock(), renew_seconds=0.02))
        while len(leases.written) < count:
            await asyncio.sleep(0.005)
        beating.cancel()
    return [each["metadata"].get("ownerReferences") for each in leases.written[:count]]


async def test_the_node_owns_its_lease() -> None:
    leases = Leases(None)
    leases.uid = "uid-1"

    assert await beats(leases, 3) == [[{"apiVersion": "v1", "kind": "Node", "name": "node1", "uid": "uid-1"}]] * 3
    assert leases.reviews == 1


async def test_lease_of_a_recreated_node_has_the_new_uid() -> None:
    leases = Leases(None)
    leases.uid = "uid-1"
    first = await beats(leases, 1)
    leases = Leases(errors.NotFound("the garbage collector was here"))
    leases.uid, leases.next_uid = "uid-1", "uid-2"

    second = await beats(leases, 2)
    assert [each[0]["uid"] for each in (*first, *second)] == ["uid-1", "uid-2", "uid-2"]
    assert leases.reviews == 2


class Collected(Leases):
    """Leases with a garbage collector, which deletes what is owned by another uid than ``uid-2``."""

    def __init__(self) -> None:
        super().__init__(None)
        self.lease: dict[str, Any] | None = None
        self.lost = 0

    async def patch(self, resource: object, name: str, obj: dict[str, Any], namespace: str) -> dict[str, Any]:
        if self.lease is None:
            raise errors.NotFound(name)
        return await self.create(resource, obj, namespace, name)

    async def create(self, resource: object, obj: dict[str, Any], namespace: str = "", name: str = "") -> dict[str, Any]:
        created = await super().create(resource, obj, namespace, name)
        if resource != SELF_SUBJECT_REVIEWS:
            owned = any(each["uid"] != "uid-2" for each in obj["metadata"].get("ownerReferences", ()))
            self.lost += owned
            self.lease = None if owned else obj
        return created


async def test_token_of_a_former_node_does_not_lose_the_lease() -> None:
    """Otherwise each renewed Lease would be deleted until the token expires."""
    leases = Collected()
    leases.uid = "uid-1"

    def owners(found: list[Any]) -> list[str]:
        return [each[0]["uid"] if each else "" for each in found]

    assert owners(await beats(leases, 6)) == ["uid-1", "", "", "", "", ""]
    assert leases.lost == 1


@pytest.mark.parametrize("fault", [None, errors.NotFound("first")], ids=["patch", "create"])
async def test_lease_is_renewed_without_owner_if_owners_are_refused(fault: Exception | None) -> None:
    leases = Leases(fault)
    leases.uid, leases.refuses_owners = "uid-1", True

    assert await beats(leases, 2) == [None, None]


def test_node_is_silent_after_several_missed_renewals() -> None:
    lease = heartbeat.lease("node1", "leases", VERDICT, "2026-11-22T12:00:00.000000Z")

    assert lease["spec"] == {"holderIdentity": "node1", "leaseDurationSeconds": 40, "renewTime": "2026-11-22T12:00:00.000000Z"}
    assert lease["spec"]["leaseDurationSeconds"] >= 3 * heartbeat.RENEW_SECONDS
    assert lease["metadata"]["annotations"] == {
        "kubevirt.io/acceleration": "qemu: test",
        "kubevirt.io/contract-versions": "1",
    }
