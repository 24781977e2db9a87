"""Bound policies, compiled on first match, indexed by resource."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from apiserver.admission.policy import definitions
from apiserver.admission.policy.definitions import Binding, Policy
from apiserver.admission.policy.params import Params
from apiserver.admission.versions import Versions
from apiserver.apis.meta.errors import StatusError
from apiserver.apis.meta.objects import Object, name_of
from apiserver.apis.meta.resources import Resource
from apiserver.client.backoff import Backoff
from apiserver.client.informer import Informer
from apiserver.client.rest import Client, TransportError
from apiserver.client.store import Callback

logger = logging.getLogger(__name__)

_GROUP: Final = "admissionregistration.k8s.io"
_REVIEWS: Final = frozenset({"authentication.k8s.io", "authorization.k8s.io"})
_EXEMPT: Final = frozenset(f"{effect}admissionpolic{ending}" for effect in ("validating", "mutating") for ending in ("ies", "ybindings"))
Program = TypeVar("Program")


@dataclass(slots=True, eq=False)
class Hook(Generic[Program]):
    """A policy with its bindings."""

    policy: Policy
    bindings: tuple[Binding, ...]
    compile: Callable[[Policy], Program]
    _compiled: Program | None = None

    @property
    def compiled(self) -> Program:
        """The policy's expressions, compiled at first use."""
        if self._compiled is None:
            self._compiled = self.compile(self.policy)
        return self._compiled


class Source(Generic[Program]):
    """The policies of one kind (validating or mutating), while ``run`` runs."""

    def __init__(
        self, client: Client, policies: Resource, bindings: Resource, versions: Versions, compile_: Callable[[Policy], Program]
    ) -> None:
        self.known = asyncio.Event()
        """Set once all policies and bindings are loaded, or the cluster lacks their kinds."""
        self.params = Params(client)
        self.idle = True
        """No policy is bound: the usual case."""
        self._client = client
        self._resources = (policies, bindings)
        self._informers = tuple(Informer(client, each) for each in self._resources)
        self._versions = versions
        self._compile = compile_
        self._policies: dict[str, Hook[Program]] = {}
        self._bindings: dict[str, Binding] = {}
        self._hooks: tuple[Hook[Program], ...] | None = None
        self._index: dict[tuple[str, str, str, str, str], tuple[Hook[Program], ...]] = {}
        self._informers[0].subscribe(self._policy_changed)
        self._informers[1].subscribe(self._binding_changed)

    def subscribe(self, callback: Callback) -> None:
        """Call ``callback`` for every change of policies and bindings."""
        for each in self._informers:
            each.subscribe(callback)

    async def run(self) -> None:
        """Follow policies, bindings and parameters until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for each in self._informers:
                tasks.create_task(each.run())
            tasks.create_task(self._learn())
            tasks.create_task(self._look_for_the_kinds())
            tasks.create_task(self.params.run())

    async def _learn(self) -> None:
        for each in self._informers:
            await each.synced.wait()
        self.known.set()

    async def _look_for_the_kinds(self) -> None:
        """Set ``known`` if the cluster is too old to serve these kinds."""
        backoff = Backoff(1, 10)
        while not self.known.is_set():
            try:
                listed: Any = await self._client.request("GET", f"/apis/{_GROUP}/{self._resources[0].version}")
                served = {each.get("name") for each in (listed or {}).get("resources") or ()}
                if served and not served & {each.plural for each in self._resources}:
                    logger.info("the cluster does not serve policies of this kind", extra={"resource": self._resources[0].plural})
                    self.known.set()
                    return
            except (StatusError, TransportError) as error:
                logger.debug("discovery of policies failed", extra={"error": str(error)})
            await asyncio.sleep(backoff.next())

    def hooks(self, operation: str, resource: Resource, subresource: str) -> tuple[Hook[Program], ...]:
        """Return the bound policies with rules that match the request, sorted by name; none for reviews, policies and bindings."""
        key = (operation, resource.group, resource.version, resource.plural, subresource)
        found = self._index.get(key)
        if found is None:
            found = self._index[key] = self._matching(operation, resource, subresource)
        return found

    def _matching(self, operation: str, resource: Resource, subresource: str) -> tuple[Hook[Program], ...]:
        if resource.group in _REVIEWS or (resource.group == _GROUP and resource.plural in _EXEMPT):
            return ()  # otherwise a policy that refuses everything could not be removed
        equivalents = self._versions.equivalents(resource)
        return tuple(
            each for each in self._bound() if each.policy.matching.named(operation, resource, subresource, equivalents) is not None
        )

    def _bound(self) -> tuple[Hook[Program], ...]:
        if self._hooks is None:
            by_policy: dict[str, list[Binding]] = {}
            for name in sorted(self._bindings):
                by_policy.setdefault(self._bindings[name].policy, []).append(self._bindings[name])
            hooks = []
            for name in sorted(self._policies):
                if name in by_policy:
                    hook = self._policies[name]
                    hook.bindings = tuple(by_policy[name])
                    hooks.append(hook)
            self._hooks = tuple(hooks)
        return self._hooks

    def _policy_changed(self, old: Object | None, new: Object | None) -> None:
        if new is not None:
            policy = definitions.policy(new)
            known = self._policies.get(policy.name)
            if known is None or known.policy != policy:
                self._policies[policy.name] = Hook(policy, (), self._compile)
        elif old is not None:
            self._policies.pop(name_of(old), None)
        self._forget()

    def _binding_changed(self, old: Object | None, new: Object | None) -> None:
        if new is not None:
            self._bindings[name_of(new)] = definitions.binding(new)
        elif old is not None:
            self._bindings.pop(name_of(old), None)
        self._forget()

    def _forget(self) -> None:
        self._hooks = None
        self._index = {}
        bound = self._bound()
        self.idle = not bound
        self.params.want({each.policy.param_kind for each in bound if each.policy.param_kind is not None})
