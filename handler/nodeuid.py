"""The uid of this node's Node, from virt-handler's own token, because virt-handler may not read Nodes.

A token bound to a pod contains its node and the node's uid (KEP-4193); any client can read it by a SelfSubjectReview.  After a Node was
recreated, the token has the old uid for at most an hour. The garbage collector removes objects with this owner within seconds, so it is not
used again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final, Protocol

from apiserver.apis.core.resources import SELF_SUBJECT_REVIEWS
from apiserver.apis.meta import errors, objects
from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.resources import Resource
from apiserver.apis.virt.places import names
from apiserver.client.rest import TransportError

logger = logging.getLogger(__name__)

REVIEW_SECONDS: Final = 3.0
"""A Lease without an owner is better than a late one."""
AGAIN_SECONDS: Final = 600.0
UNANSWERED_SECONDS: Final = 60.0
COLLECTED_SECONDS: Final = 60.0
"""The owner of an object that disappears this soon does not exist."""


class Reviews(Protocol):
    """The API client's call that creates a review."""

    async def create(self, resource: Resource, obj: Object) -> Object:
        """Create an object, and return the API server's answer."""
        ...


def uid_of(review: Mapping[str, Any], node: str) -> str:
    """Return the uid of ``node`` in a SelfSubjectReview's answer; else empty."""
    extra = objects.dig(review, "status", "userInfo", "extra") or {}
    nodes: list[str] = list(extra.get(names.NODE_CLAIM) or ())
    uids: list[str] = list(extra.get(names.NODE_UID_CLAIM) or ())
    return uids[0] if nodes == [node] and len(uids) == 1 else ""


class NodeUid:
    """Requests the uid of this node's Node when needed, and caches it."""

    def __init__(self, reviews: Reviews, node: str) -> None:
        self._reviews = reviews
        self._node = node
        self._uid = ""
        self._due = float("-inf")
        self._given = ""
        self._given_at = float("-inf")
        self._stale = ""
        """The uid of an owner that does not exist."""

    def given(self, uid: str) -> None:
        """Record, for :meth:`lost`, the Node's uid that an object was written with as its owner; empty: none."""
        if uid != self._given:
            self._given, self._given_at = uid, asyncio.get_running_loop().time()

    def lost(self) -> None:
        """Record that the object of :meth:`given` is gone: :meth:`get` requests the uid again, and rejects one given shortly before."""
        if self._given and asyncio.get_running_loop().time() - self._given_at < COLLECTED_SECONDS:
            self._stale = self._given
        self._given, self._due = "", float("-inf")

    async def get(self) -> str:
        """Return this Node's uid for ownerReferences; empty while unknown."""
        await self._ask()
        return "" if self._uid == self._stale else self._uid

    async def _ask(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() < self._due:
            return
        body: Object = {"apiVersion": SELF_SUBJECT_REVIEWS.api_version, "kind": SELF_SUBJECT_REVIEWS.kind, "metadata": {}}
        try:
            async with asyncio.timeout(REVIEW_SECONDS):
                self._uid = uid_of(await self._reviews.create(SELF_SUBJECT_REVIEWS, body), self._node)
        except (errors.StatusError, TransportError, TimeoutError) as error:
            logger.warning("cannot read the uid of node %s: %s", self._node, str(error) or "no answer in time")
            self._due = loop.time() + UNANSWERED_SECONDS
        else:
            self._due = loop.time() + AGAIN_SECONDS
