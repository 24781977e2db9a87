import asyncio
from typing import Any, cast

import pytest

from apiserver.apis.meta.resources import Resource
from apiserver.client.rest import Client, TransportError
from apiserver.endpoints.filters import reviewing

REVIEWS = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False)


class Server:
    def __init__(self, *failures: float | Exception) -> None:
        self.failures = list(failures)
        self.tries = 0

    async def create(self, _: Resource, review: dict[str, Any]) -> dict[str, Any]:
        self.tries += 1
        failure = self.failures.pop(0) if self.failures else None
        if isinstance(failure, Exception):
            raise failure
        await asyncio.sleep(failure or 0)
        return {**review, "status": {"allowed": True}}


async def ask(server: Server) -> dict[str, Any]:
    return await reviewing.ask(cast(Client, server), REVIEWS, {}, reviewing.uncounted, pause_seconds=0, try_seconds=0.01)


async def test_a_lost_connection_is_followed_by_a_further_try() -> None:
    server = Server(TransportError("connection reset"))

    assert await ask(server) == {"status": {"allowed": True}}
    assert server.tries == 2


async def test_a_try_without_an_answer_is_the_last() -> None:
    server = Server(3600.0)

    with pytest.raises(reviewing.Unanswered, match="subjectaccessreviews: no answer within"):
        await ask(server)
    assert server.tries == 1
