from __future__ import annotations

import asyncio
from typing import Any

import pytest

from apiserver.apis.meta import errors
from apiserver.apis.virt.places.names import NODE_CLAIM, NODE_UID_CLAIM
from apiserver.client.rest import TransportError
from handler import nodeuid
from handler.nodeuid import NodeUid
from tests.unit.controller import virtualtime


def answer(extra: dict[str, Any] | None) -> dict[str, Any]:
    return {"status": {"userInfo": {"username": "me", **({} if extra is None else {"extra": extra})}}}


MINE = {NODE_CLAIM: ["node1"], NODE_UID_CLAIM: ["uid-1"]}


@pytest.mark.parametrize(
    ("review", "uid"),
    [
        (answer(MINE), "uid-1"),
        (answer({**MINE, NODE_CLAIM: ["node2"]}), ""),
        (answer({**MINE, NODE_CLAIM: ["node1", "node2"]}), ""),
        (answer({**MINE, NODE_UID_CLAIM: ["uid-1", "uid-2"]}), ""),
        (answer({NODE_CLAIM: ["node1"]}), ""),
        (answer({NODE_UID_CLAIM: ["uid-1"]}), ""),
        (answer(None), ""),
        ({}, ""),
    ],
    ids=["mine", "another's", "two nodes", "two uids", "no uid", "no node", "a person's", "empty"],
)
def test_the_uid_is_what_the_token_of_this_node_says(review: dict[str, Any], uid: str) -> None:
    assert nodeuid.uid_of(review, "node1") == uid


class Reviews:
    """Answers reviews in turn; the last answer stays, and None never comes."""

    def __init__(self, *answers: dict[str, Any] | Exception | None) -> None:
        self._answers = list(answers)
        self.asked: list[float] = []

    async def create(self, _resource: object, _obj: object) -> dict[str, Any]:
        self.asked.append(asyncio.get_running_loop().time())
        given = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(given, Exception):
            raise given
        if given is None:
            await asyncio.sleep(1e6)
        return given or {}


@pytest.mark.parametrize("fault", [errors.Forbidden("no"), TransportError("refused"), None], ids=["refused", "away", "silent"])
def test_failed_review_is_retried_and_the_known_uid_kept(fault: Exception | None) -> None:
    async def scenario() -> list[str]:
        reviews = Reviews(answer(MINE), fault, answer({**MINE, NODE_UID_CLAIM: ["uid-2"]}))
        uid = NodeUid(reviews, "node1")
        seen = []
        for _ in range(180):
            seen.append(await uid.get())
            await asyncio.sleep(10)
        assert len(reviews.asked) == 4
        assert reviews.asked[1] >= 600
        assert 60 <= reviews.asked[2] - reviews.asked[1] < 80
        uid.lost()
        await uid.get()
        assert len(reviews.asked) == 5
        return list(dict.fromkeys(seen))

    assert virtualtime.run(scenario()) == ["uid-1", "uid-2"]
