"""Lists of objects, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Final

from apiserver.apis.meta.objects import Object, dig
from apiserver.kubectl import verbs
from apiserver.kubectl.access import Access

PAGE: Final = 100
"""Per request; one may have 128 KiB."""


async def listed(
    access: Access, path: str, doing: str, *, params: Mapping[str, str] | None = None, page: int = PAGE
) -> AsyncIterator[Object]:
    """Yield a collection's objects, read in pages of ``page`` objects. Raises Failure; its text has ``doing``."""
    given = {**(params or {}), "limit": str(page)}
    more = ""
    while True:
        found = await verbs.request(access, "GET", path, doing, params={**given, "continue": more} if more else given)
        for each in found.get("items") or ():
            yield each
        if not (more := str(dig(found, "metadata", "continue") or "")):
            return
