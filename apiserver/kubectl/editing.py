"""Edit an object of a user; read it again after a conflicting write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from apiserver.apis.meta import errors
from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.resources import Resource
from apiserver.kubectl import messages, verbs
from apiserver.kubectl.access import Access

_TRIES: Final = 5
"""The status of a running machine changes often."""


async def edit(
    access: Access, resource: Resource, name: str, what: str, edited: Callable[[Object], Object], *, dry_run: bool = False
) -> Object:
    """Read an object, write what ``edited`` returns for it, up to five times after conflicts, and return the object as last read.

    ``what`` names the object in messages. Raises Failure.
    """
    path, params = resource.path(access.namespace, name), {"dryRun": "All"} if dry_run else None
    for _ in range(_TRIES - 1):
        found = await verbs.request(access, "GET", path, f"read {what}")
        try:
            await verbs.answered(access, "PUT", path, f"edit {what}", params=params, body=edited(found))
        except errors.Conflict:
            continue
        except errors.StatusError as error:
            raise messages.of_status(error, f"edit {what}") from error
        return found
    found = await verbs.request(access, "GET", path, f"read {what}")
    await verbs.request(access, "PUT", path, f"edit {what}", params=params, body=edited(found))
    return found
