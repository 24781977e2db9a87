from __future__ import annotations

import asyncio
from typing import Any, cast

from apiserver.client.rest import Client
from apiserver.endpoints.filters.tokens import TokenReview


class Cluster:
    def __init__(self) -> None:
        self.waiting = 0
        self.most = 0
        self.release = asyncio.Event()

    async def create(self, resource: object, review: dict[str, Any]) -> dict[str, Any]:
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        await self.release.wait()
        self.waiting -= 1
        return {"status": {"authenticated": review["spec"]["token"] == "good", "user": {"username": "alice"}}}


async def test_bad_tokens_bound_reviews_and_leave_room_for_others() -> None:
    cluster = Cluster()
    review = TokenReview(cast("Client", cluster))
    async with asyncio.TaskGroup() as tasks:
        bad = [tasks.create_task(review(f"bad{number}")) for number in range(500)]
        good = tasks.create_task(review("good"))
        for _ in range(10):
            await asyncio.sleep(0)
        assert cluster.waiting == 32
        cluster.release.set()
    assert cluster.most == 32
    assert all(each.result() is None for each in bad)
    user = good.result()
    assert user is not None
    assert user.name == "alice"
