"""The cluster's namespaces, as plug-ins need them: known ones at once, others looked up, because a copy is always a little behind."""

from __future__ import annotations

import asyncio

from apiserver.apis.core.resources import NAMESPACES
from apiserver.apis.meta.errors import Details, NotFound, ServiceUnavailable, StatusError
from apiserver.apis.meta.objects import Object, without_managed_fields
from apiserver.client.informer import Informer
from apiserver.client.rest import Client, TransportError


class Namespaces:
    """A copy, and who to ask beyond it."""

    def __init__(self, informer: Informer, client: Client) -> None:
        self.informer = informer
        self._client = client

    @classmethod
    def of(cls, client: Client) -> Namespaces:
        """Return the namespaces of a cluster; run its informer."""
        return cls(Informer(client, NAMESPACES, trim=trim), client)

    @property
    def synced(self) -> asyncio.Event:
        """Set once all of them are known."""
        return self.informer.synced

    async def get(self, name: str) -> Object:
        """Return a namespace, not to be written to.

        Raises:
            NotFound: there is none.
            ServiceUnavailable: nobody can say.
        """
        return self.informer.get("", name) or await self._look_up(name)

    async def _look_up(self, name: str) -> Object:
        try:
            return await self._client.get(NAMESPACES, name)
        except NotFound:
            raise NotFound(f'namespaces "{name}" not found', Details(name=name, kind="namespaces")) from None
        except (StatusError, TransportError) as error:
            why = f"look up namespace {name} for admission: {error}"
            raise ServiceUnavailable(why, Details(retry_after_seconds=1)) from error


def trim(namespace: Object) -> Object:
    """Keep what plug-ins and policies read of a namespace; who wrote which field is the larger half of many."""
    return without_managed_fields(namespace)
