"""Parameters of policies: objects of any kind, followed while a policy names the kind.

This server's account needs ``get``, ``list`` and ``watch`` on their resource.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final

from apiserver.admission.policy.definitions import Binding, ParamKind, Policy
from apiserver.apis.meta.errors import StatusError
from apiserver.apis.meta.objects import Object, labels_of, without_managed_fields
from apiserver.apis.meta.resources import Resource
from apiserver.client.backoff import Backoff
from apiserver.client.informer import Informer
from apiserver.client.rest import Client, TransportError

logger = logging.getLogger(__name__)

SYNC_SECONDS: Final = 1.0
"""Longest wait of a request; then its policies fail."""


class ConfigurationError(Exception):
    """A policy or binding cannot be evaluated; the text is for the client."""


class UnknownKind(ConfigurationError):
    """The kind of a policy's parameters does not exist."""


class _Followed:
    def __init__(self, kind: ParamKind) -> None:
        self.kind = kind
        self.informer: Informer | None = None
        self.resolved = asyncio.Event()
        """The kind was looked up, found or not."""
        self.task: asyncio.Task[None] | None = None


class Params:
    """The parameter objects of all policies, followed while :meth:`run` runs."""

    def __init__(self, client: Client, sync_seconds: float = SYNC_SECONDS) -> None:
        self._client = client
        self._sync_seconds = sync_seconds
        self._followed: dict[ParamKind, _Followed] = {}
        self._changed = asyncio.Event()

    def want(self, kinds: set[ParamKind]) -> None:
        """Let :meth:`run` follow the objects of exactly these kinds."""
        for each in kinds - self._followed.keys():
            self._followed[each] = _Followed(each)
            self._changed.set()
        for each in self._followed.keys() - kinds:
            followed = self._followed.pop(each)
            if followed.task is not None:
                followed.task.cancel()

    async def run(self) -> None:
        """Follow the wanted kinds until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._changed.clear()
                for each in self._followed.values():
                    if each.task is None:
                        each.task = tasks.create_task(self._follow(each))
                await self._changed.wait()

    async def of(self, policy: Policy, binding: Binding, namespace: str) -> Sequence[Object | None]:
        """Return a binding's parameters: ``[None]`` if policy or binding names none; empty if none exists: the binding does not apply.

        ``namespace``: the request's, for bindings without ``paramRef.namespace``.

        Raises ConfigurationError, such as UnknownKind: none exists and the binding has ``Deny``, not loaded, or misconfigured.
        """
        kind, ref = policy.param_kind, binding.param_ref
        if kind is None or ref is None:
            return [None]
        informer = await self._informer(kind)
        if not informer.resource.namespaced:
            if ref.namespace:
                raise ConfigurationError("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
            namespace = ""
        elif ref.namespace:
            namespace = ref.namespace
        elif not namespace:
            raise ConfigurationError("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")
        found: list[Object | None] = []
        if ref.name:
            found = [each for each in (informer.get(namespace, ref.name),) if each is not None]
        elif ref.selector is not None:
            if ref.selector.problem:
                raise ConfigurationError(ref.selector.problem)
            listed = informer.list(namespace if informer.resource.namespaced else None)
            found = [each for each in listed if ref.selector.selector.matches(labels_of(each))]
        else:
            raise ConfigurationError("one of name or selector must be provided")
        if not found and ref.denies:
            raise ConfigurationError("no params found for policy binding with `Deny` parameterNotFoundAction")
        return found

    async def _informer(self, kind: ParamKind) -> Informer:
        followed = self._followed.get(kind)
        try:
            if followed is not None:
                async with asyncio.timeout(self._sync_seconds):
                    await followed.resolved.wait()
                    if followed.informer is not None:
                        await followed.informer.synced.wait()
                        return followed.informer
        except TimeoutError:
            raise ConfigurationError(f"paramKind kind `{kind}` not yet synced to use for admission") from None
        group, _, version = kind.api_version.rpartition("/")
        shown = f"{group}/{version}, Kind={kind.kind}"
        raise UnknownKind(f"failed to find resource referenced by paramKind: '{shown}'")

    async def _follow(self, followed: _Followed) -> None:
        backoff = Backoff(1, 30)
        while True:
            resource: Resource | None = None
            try:
                resource = await self._resource(followed.kind)
                if resource is not None:
                    await self._client.request("GET", resource.path(), params={"limit": "1"})
                    break
                logger.warning("the kind of a policy's parameters does not exist", extra={"kind": str(followed.kind)})
                followed.resolved.set()
            except (StatusError, TransportError) as error:
                what = resource.plural if resource else followed.kind.api_version
                logger.warning(
                    "cannot read the parameters of policies; grant get, list and watch on them to this server",
                    extra={"resource": what, "error": str(error)},
                )
            await asyncio.sleep(backoff.next())
        followed.informer = Informer(self._client, resource, trim=without_managed_fields)
        followed.resolved.set()
        await followed.informer.run()

    async def _resource(self, kind: ParamKind) -> Resource | None:
        group, _, version = kind.api_version.rpartition("/")
        path = f"/apis/{kind.api_version}" if group else f"/api/{kind.api_version}"
        try:
            listed: Any = await self._client.request("GET", path)
        except StatusError as error:
            if error.code == 404:
                return None
            raise
        for each in (listed or {}).get("resources") or ():
            if each.get("kind") == kind.kind and "/" not in each.get("name", "/"):
                return Resource(group, version, each["name"], kind.kind, namespaced=bool(each.get("namespaced")))
        return None
