"""LIST: the requested revision, pages and continue tokens.

======================= =============================== ==================== =====================
``resourceVersion``     no ``resourceVersionMatch``     ``Exact``            ``NotOlderThan``
======================= =============================== ==================== =====================
absent                  now (linearizable)              refused              refused
``0``                   all that the cache has,         refused              all that the cache has,
                        without pages                                        without pages
N                       not older than N; with          exactly N            not older than N
                        ``limit``: exactly N
with ``continue``       the token's revision            refused              refused
======================= =============================== ==================== =====================

A token is ``{"v", "rv", "start"}`` as in ``k8s.io/apiserver/pkg/storage/continue.go``; its revision is -1 without
consistency.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import orjson

from apiserver.apis.meta.errors import BadRequest, Expired, Timeout
from apiserver.registry.cacher.freshness import too_large
from apiserver.registry.cacher.items import DECODING_ERRORS, Item
from apiserver.registry.generic.selection import Selection
from apiserver.registry.generic.store import Store
from apiserver.registry.generic.transactions import reading
from storage.port import Compacted, Entry, FutureRevision

_FORMAT: Final = "meta.k8s.io/v1"
_MAX_TOKEN: Final = 4096
_PAGE: Final = 500
_STROKE: Final = 50_000
"""Before other tasks run: about 10 ms."""
_ANY: Final = -1
_UNREADABLE: Final = "invalid continue token: continue key is not valid"
_TOO_OLD: Final = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue "
    "parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token "
    "results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and "
    "now may show up in the list."
)


@dataclass(frozen=True, slots=True)
class Position:
    """Where a list continues: at ``revision`` (-1: any), from key ``start`` below the collection's prefix."""

    revision: int
    start: str


def encode_token(position: Position) -> str:
    """Encode a position as continue token."""
    raw = orjson.dumps({"v": _FORMAT, "rv": position.revision, "start": position.start})
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def decode_token(token: str) -> Position:
    """Return the ``Position`` in a continue token; raises BadRequest."""
    try:
        if len(token) > _MAX_TOKEN:
            raise ValueError("too long")
        raw = orjson.loads(base64.b64decode(token.encode() + b"=" * (-len(token) % 4), altchars=b"-_", validate=True))
        version, revision, start = raw["v"], raw["rv"], raw["start"]
    except (ValueError, KeyError, TypeError, binascii.Error):
        raise BadRequest(f"{_UNREADABLE}: it cannot be decoded") from None
    if (
        version != _FORMAT
        or type(revision) is not int
        or not (0 < revision < 1 << 63 or revision == _ANY)
        or not isinstance(start, str)
        or not start
    ):
        raise BadRequest(f"{_UNREADABLE}: server does not recognize this encoded version, or part of it is missing")
    if start.startswith("/") or ".." in start.rstrip("\0").split("/"):
        raise BadRequest(f"{_UNREADABLE}: it leads out of the collection")
    return Position(revision, start)


def parse_revision(text: str) -> int:
    """Return a resourceVersion as a number; 0 if empty. Raises BadRequest."""
    if not text:
        return 0
    if not text.isdecimal() or not text.isascii() or len(text) > 19:
        raise BadRequest(f"invalid resource version: {text[:64]!r} is not a decimal number")
    return int(text)


@dataclass(frozen=True, slots=True)
class ListQuery:
    """Options of a list, already checked for contradictions; without ``limit``, all. ``match``: with ``resourceVersionMatch``."""

    namespace: str
    selection: Selection
    limit: int = 0
    token: str = ""
    resource_version: str = ""
    exact: bool = False
    match: bool = False


@dataclass(frozen=True, slots=True)
class Listing:
    """A page of a list."""

    items: Sequence[Item]
    revision: int
    continue_token: str = ""
    remaining: int | None = None
    """None if zero or unknown."""


async def run(store: Store, query: ListQuery) -> Listing:
    """Return the requested page.

    Raises BadRequest; Expired if storage compacted the revision (with a new token, to continue inconsistently, if the query has a
    token); Timeout for a future revision; ServiceUnavailable; TooManyRequests before the cache has listed.
    """
    if query.token:
        position = decode_token(query.token)
        if position.revision > 0:
            return await _from_storage(store, query, position)
        return await _from_cache(store, query, start=position.start)
    revision = parse_revision(query.resource_version)
    if query.resource_version and not revision:
        query = replace(query, limit=0)  # as Go: later pages would come from storage
    if query.exact or (revision and query.limit and not query.match):
        await store.cache.wait_fresh(revision)
        return await _from_storage(store, query, Position(revision, ""))
    return await _from_cache(store, query, at_least=revision if query.resource_version else None)


async def _from_cache(store: Store, query: ListQuery, *, at_least: int | None = None, start: str = "") -> Listing:
    """List from the cache once it has revision ``at_least``, or raise Timeout; from storage if the cache is unusable.

    ``at_least`` None: once the cache has everything committed, or from storage if that takes too long.
    """
    cache = store.cache
    if cache.synced.is_set() and not cache.is_usable:
        return await _from_storage(store, query, Position(0, start))
    try:
        await cache.wait_fresh(at_least)
    except Timeout:
        if at_least is not None:
            raise
        cache.consistent_reads["fallback"] += 1
        return await _from_storage(store, query, Position(0, start))
    cache.lists += 1
    if at_least is None:
        cache.consistent_reads["success"] += 1
    listing, fetched = await _of_cache(store, query, start)
    cache.list_fetched += fetched
    cache.list_returned += len(listing.items)
    return listing


async def _of_cache(store: Store, query: ListQuery, start: str) -> tuple[Listing, int]:
    cache = store.cache
    prefix = store.objects.prefix(query.namespace)
    start_key = prefix + start if start else ""
    if query.selection.is_everything:
        page = cache.list(prefix, start=start_key, limit=query.limit)
        return _page(page.items, prefix, page.revision, page.remaining, counted=True), len(page.items)
    if query.namespace and (name := query.selection.name):
        item = cache.get(store.objects.key(query.namespace, name))
        found = [item] if item is not None and query.selection(item) and item.key >= start_key else []
        return Listing(found, cache.revision), int(item is not None)
    trigger = query.selection.trigger
    if trigger is not None:
        await cache.prepare(trigger)
    page = cache.list(prefix, start=start_key, trigger=trigger)
    selected = page.items if page.by_trigger and query.selection.is_trigger else await _selected(query.selection, page.items)
    kept = selected[: query.limit] if query.limit else selected
    return _page(kept, prefix, page.revision, len(selected) - len(kept), counted=False), len(page.items)


async def _selected(selection: Selection, items: Sequence[Item]) -> list[Item]:
    known: dict[bytes, bool] = {}
    found: list[Item] = []
    stroke = max(_STROKE // max(selection.number, 1), 1)
    for start in range(0, len(items), stroke):
        if start:
            await asyncio.sleep(0)
        found += selection.among(items[start : start + stroke], known)
    return found


async def _from_storage(store: Store, query: ListQuery, position: Position) -> Listing:
    prefix = store.objects.prefix(query.namespace)
    start = prefix + position.start if position.start else ""
    revision = position.revision
    found: list[Item] = []
    while True:
        wanted = query.limit - len(found) if query.limit else 0
        size = max(wanted, 1) if query.selection.is_everything and query.limit else _PAGE
        try:
            with reading(f"list {store.resource.plural}"):
                page = await store.storage.range(prefix, start=start, limit=size, revision=revision)
        except Compacted:
            raise _expired(query, position) from None
        except FutureRevision:  # a token from before a restore of storage
            raise too_large(revision, store.cache.revision) from None
        revision = page.revision
        for index, entry in enumerate(page.entries, 1):
            item = _decoded(store, entry)
            if item is not None and query.selection(item):
                found.append(item)
            if query.limit and len(found) >= query.limit:
                left = page.count - index
                return _page(found, prefix, revision, left, counted=query.selection.is_everything, last=entry.key)
        if not page.more:
            return Listing(found, revision)
        start = page.entries[-1].key + "\0"


def _decoded(store: Store, entry: Entry) -> Item | None:
    try:
        return store.objects.decode(entry)
    except DECODING_ERRORS:
        return None  # reported already


def _page(items: Sequence[Item], prefix: str, revision: int, left: int, *, counted: bool, last: str = "") -> Listing:
    if left <= 0 or not items:
        return Listing(items, revision)
    start = (last or items[-1].key).removeprefix(prefix) + "\0"
    return Listing(items, revision, encode_token(Position(revision, start)), left if counted else None)


def _expired(query: ListQuery, position: Position) -> Expired:
    if not query.token:
        return Expired("The resourceVersion for the provided list is too old.")
    return Expired(_TOO_OLD, metadata={"continue": encode_token(Position(_ANY, position.start))})
