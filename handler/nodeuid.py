"""The uid of this node's Node object: virt-handler may read no Nodes, but kube-apiserver tells it whom its own token is of.

A token that is bound to a pod names the pod's node with its uid (KEP-4193), and a SelfSubjectReview, which everybody who is logged in may
create, shows it. A token keeps the uid of a Node that was deleted and made anew until the kubelet replaces it: minutes after its own
restart, an hour at most. An object with the old uid as its owner is removed by the garbage collector within seconds, so that no object is
given it again.
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
"""The Lease is renewed without an owner rather than late."""
AGAIN_SECONDS: Final = 600.0
UNANSWERED_SECONDS: Final = 60.0
COLLECTED_SECONDS: Final = 60.0
"""An object that is gone so soon after it was given an owner went because there is no such owner."""


class Reviews(Protocol):
    """The call of the API client that asks for a review."""

    async def create(self, resource: Resource, obj: Object) -> Object:
        """Create it."""
        ...


def uid_of(review: Mapping[str, Any], node: str) -> str:
    """Return the uid of ``node`` in the answer to a SelfSubjectReview; empty if it tells of none, or of another node."""
    extra = objects.dig(review, "status", "userInfo", "extra") or {}
    nodes: list[str] = list(extra.get(names.NODE_CLAIM) or ())
    uids: list[str] = list(extra.get(names.NODE_UID_CLAIM) or ())
    return uids[0] if nodes == [node] and len(uids) == 1 else ""


class NodeUid:
    """Asks now and then, and remembers the last answer."""

    def __init__(self, reviews: Reviews, node: str) -> None:
        self._reviews = reviews
        self._node = node
        self._uid = ""
        self._due = float("-inf")
        self._given = ""
        self._given_at = float("-inf")
        self._stale = ""
        """The uid under which an object was not kept."""

    def given(self, uid: str) -> None:
        """Take note that an object has the node of this uid as its owner; empty: that it has none."""
        if uid != self._given:
            self._given, self._given_at = uid, asyncio.get_running_loop().time()

    def lost(self) -> None:
        """Take note that the object is gone: the uid is asked for again."""
        if self._given and asyncio.get_running_loop().time() - self._given_at < COLLECTED_SECONDS:
            self._stale = self._given
        self._given, self._due = "", float("-inf")

    async def get(self) -> str:
        """Return the uid that an object can be given as its owner's, as far as is known; empty where no token names one."""
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
            logger.warning("ask for the uid of node %s: %s", self._node, str(error) or "no answer in time")
            self._due = loop.time() + UNANSWERED_SECONDS
        else:
            self._due = loop.time() + AGAIN_SECONDS
