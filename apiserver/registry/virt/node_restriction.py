"""NodeRestriction: virt-handler may only write objects of its own node (``docs/decisions/security.md``).

Tokens are bound to pods, and kube-apiserver reports the pod's node (KEP-4193): in ``X-Remote-Extra-`` when it proxies,
else in its TokenReview.

The new object is compared with the stored one (:mod:`apiserver.apis.virt.rights.node_rights`) at the write's revision. Other objects are
read outside the transaction: the parties of an unfinished Migration may do what was allowed when it was read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from apiserver.apis.meta import objects
from apiserver.apis.meta.errors import Forbidden, NotFound, ServiceUnavailable
from apiserver.apis.meta.names import subdomain_errors
from apiserver.apis.meta.objects import Object, dig
from apiserver.apis.meta.resources import Resource
from apiserver.apis.meta.validation import FieldError, shortened
from apiserver.apis.virt.lifecycle import phases
from apiserver.apis.virt.places import forms, names
from apiserver.apis.virt.places.resources import MIGRATIONS, VIRTUAL_MACHINES
from apiserver.apis.virt.rights.node_rights import machines, migrations
from apiserver.registry.generic import metadata
from apiserver.registry.generic.admission import Attributes, Operation
from apiserver.registry.generic.store import Store

MAX_CAUSES: Final = 16
"""Most fields in one error."""

Addresses = Callable[[str], Sequence[str]]
"""Returns the addresses of a node's virt-handlers."""


class NodeRestriction:
    """The admission plug-in that lets virt-handler write only statuses of its own node's objects."""

    name = "NodeRestriction"

    def __init__(
        self, username: str, *, required: bool, addresses: Addresses, now: Callable[[], datetime], revoked: Callable[[str], bool]
    ) -> None:
        """Restrict the writes of virt-handler's service account ``username``.

        Tokens must name their node if ``required``, else those without a node are not checked. ``revoked`` raises ServiceUnavailable until
        revocations are loaded.
        """
        self._username = username
        self._required = required
        self._addresses = addresses
        self._now = now
        self._revoked = revoked
        self._stores: Mapping[Resource, Store] = {}

    def follow(self, stores: Mapping[Resource, Store]) -> None:
        """Set the stores, to read related objects."""
        self._stores = stores

    def handles(self, operation: Operation, resource: Resource, subresource: str) -> bool:
        """Return whether the resource's group is ``kubevirt.io``."""
        del operation, subresource
        return resource.group == names.GROUP

    async def mutate(self, attributes: Attributes) -> None:
        """Change nothing."""

    async def validate(self, attributes: Attributes) -> None:
        """Validate a write of virt-handler; admit other users.

        Raises Forbidden for a token that must name its node and does not, a revoked node, or a write of more than the allowed status
        fields; ServiceUnavailable until revocations, and virt-handler's addresses if needed, are loaded.
        """
        if attributes.user.name != self._username:
            return
        node = self._node(attributes)
        if node is None:
            return
        if self._revoked(node):
            raise _forbidden(attributes, f'node "{node}" is revoked, so its virt-handler may not write')
        if attributes.operation != "UPDATE" or attributes.subresource != "status" or attributes.obj is None or attributes.old is None:
            raise _forbidden(attributes, f'virt-handler of node "{node}" may write only the status')
        found = await self._validate(attributes.resource, node, attributes.old, attributes.obj)
        if found:
            raise _refusal(attributes, node, found)

    def _node(self, attributes: Attributes) -> str | None:
        """Return the token's node; None if optional and missing. Raises Forbidden if required and missing, invalid, or several."""
        claims = attributes.user.extra.get(names.NODE_CLAIM, ())
        if len(claims) == 1 and claims[0] and not subdomain_errors(claims[0]):
            return claims[0]
        if not claims and not self._required:
            return None
        problem = "does not name the one node of its pod" if claims else "names no node"
        raise _forbidden(
            attributes,
            f"the token of virt-handler {problem} (extra {names.NODE_CLAIM}): kube-apiserver 1.30 and later sets it for tokens bound to "
            "pods; with virt-api --no-require-node-claims, every virt-handler may act for every node",
        )

    async def _validate(self, resource: Resource, node: str, old: Object, new: Object) -> list[FieldError]:
        namespace = objects.namespace_of(old)
        if resource.plural == VIRTUAL_MACHINES.plural:
            migration = None
            if dig(old, "status", "nodeName") != node and (claimed := dig(new, "status", "migration", "name")):
                migration = await self._read(MIGRATIONS, namespace, claimed)
            return machines.validate(machines.MachineWrite(node, old, new, self._now(), migration))
        machine = None
        if phases.phase_of(new) in phases.MIGRATION_FINAL or dig(new, "status", "attempts") != dig(old, "status", "attempts"):
            machine = await self._read(VIRTUAL_MACHINES, namespace, dig(old, "spec", "selector", "name"))
        addresses: frozenset[str] = frozenset()
        if dig(old, "status", "targetNode") == node and dig(new, "status", "targetAddress") != dig(old, "status", "targetAddress"):
            addresses = self._addresses_on(node)
        return migrations.validate(migrations.MigrationWrite(node, old, new, self._now(), machine, addresses))

    async def _read(self, resource: Resource, namespace: str, name: str) -> Object | None:
        try:
            return (await self._stores[resource].get(namespace, name)).object
        except NotFound:
            return None

    def _addresses_on(self, node: str) -> frozenset[str]:
        known = frozenset(str(found) for each in self._addresses(node) if (found := forms.pod_ip(each)) is not None)
        if not known:
            details = metadata.details(MIGRATIONS, "", retry_after_seconds=2)
            raise ServiceUnavailable(
                (f'status.targetAddress cannot be checked, because the address of virt-handler on node "{node}" is not known'), details
            )
        return known


def _refusal(attributes: Attributes, node: str, found: Sequence[FieldError]) -> Forbidden:
    texts, causes = shortened(found, MAX_CAUSES)
    error = _forbidden(attributes, f'virt-handler of node "{node}" may not write this status: [{", ".join(texts)}]')
    error.details = replace(error.details, causes=causes)
    return error


def _forbidden(attributes: Attributes, text: str) -> Forbidden:
    resource, name = attributes.resource, _name(attributes)
    return Forbidden(f'{metadata.qualified(resource)} "{name}" is forbidden: {text}', metadata.details(resource, name))


def _name(attributes: Attributes) -> str:
    candidates: Iterable[str] = (attributes.name, objects.name_of(attributes.obj or {}), "Unknown")
    return next(each for each in candidates if each)
