"""The cluster's namespaces: from an informer or, if missing there because it lags, by a request."""

from __future__ import annotations

import asyncio

from apiserver.apis.core.resources import NAMESPACES
from apiserver.apis.meta.errors import Details, NotFound, ServiceUnavailable, StatusError
from apiserver.apis.meta.objects import Object, without_managed_fields
from apiserver.client.informer import Informer
from apiserver.client.rest import Client, TransportError


class Namespaces:
    """The cluster's namespaces."""

    def __init__(self, informer: Informer, client: Client) -> None:
        self.informer = informer
        self._client = client

    @classmethod
    def of(cls, client: Client) -> Namespaces:
        """Return the namespaces of the client's cluster; the caller must run ``informer``."""
        return cls(Informer(client, NAMESPACES, trim=trim), client)

    @property
    def synced(self) -> asyncio.Event:
        """Set once all namespaces are loaded."""
        return self.informer.synced

    async def get(self, name: str) -> Object:
        """Return a namespace, read-only. Raises NotFound, or ServiceUnavailable after another error."""
        return self.informer.get("", name) or await self._look_up(name)

    async def _look_up(self, name: str) -> Object:
        try:
            return await self._client.get(NAMESPACES, name)
        except NotFound:
            raise NotFound(f'namespaces "{name}" not found', Details(name=name, kind="namespaces")) from None
        except (StatusError, TransportError) as error:
            why = f"cannot read namespace {name} for admission: {error}"
            raise ServiceUnavailable(why, Details(retry_after_seconds=1)) from error


def trim(namespace: Object) -> Object:
    """Return a namespace without its managed fields."""
    return without_managed_fields(namespace)
