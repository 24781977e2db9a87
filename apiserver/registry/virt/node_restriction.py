"""NodeRestriction: virt-handler writes only what is its node's.

Kubernetes' plug-in of this name does the same for kubelets. Each virt-handler has the same service account, so RBAC cannot tell them apart;
its token is bound to its pod, and kube-apiserver says which node that is on (KEP-4193), in ``X-Remote-Extra-`` for what it passes on, and
in its TokenReview for those who come directly. Nobody else can: only the front proxy is believed about others, and acting as somebody with
such an ``extra`` takes the right to impersonate it.

Whatever a write is (an update, any kind of patch, an apply, a dry run), the object that it would store is held against the object that it
would replace (:mod:`apiserver.apis.virt.rights.node_rights`), at the revision at which that happens, and again when somebody else wrote in
between. What else it has to be held against is read as of now. That is no transaction with the write, and need not be: what was true of an
unfinished Migration when it was read is what its parties were allowed to do then.
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
"""Fields that one refusal names."""

Addresses = Callable[[str], Sequence[str]]
"""Returns the IP addresses of the virt-handlers that run on a node."""


class NodeRestriction:
    """The plug-in; see the module."""

    name = "NodeRestriction"

    def __init__(
        self, username: str, *, required: bool, addresses: Addresses, now: Callable[[], datetime], revoked: Callable[[str], bool]
    ) -> None:
        """Validate the writes of one account.

        Args:
            username: of virt-handler's service account.
            required: whether its tokens have to say their node; if not, a token that says none is not judged.
            addresses: where virt-handler of a node is.
            now: the wall clock.
            revoked: whether the operator revoked a node (:mod:`apiserver.apis.virt.rights.trust`);
                raises ServiceUnavailable while that is unknown.
        """
        self._username = username
        self._required = required
        self._addresses = addresses
        self._now = now
        self._revoked = revoked
        self._stores: Mapping[Resource, Store] = {}

    def follow(self, stores: Mapping[Resource, Store]) -> None:
        """Read from these what writes are held against."""
        self._stores = stores

    def handles(self, operation: Operation, resource: Resource, subresource: str) -> bool:
        """Return whether it is about our kinds."""
        del operation, subresource
        return resource.group == names.GROUP

    async def mutate(self, attributes: Attributes) -> None:
        """Change nothing."""

    async def validate(self, attributes: Attributes) -> None:
        """Validate a request of virt-handler's account.

        Raises:
            Forbidden: the token does not say which node it is for; or with the fields that are not that node's to write so.
            ServiceUnavailable: it is not known where virt-handler of the node is, or whether the node is revoked.
        """
        if attributes.user.name != self._username:
            return
        node = self._node(attributes)
        if node is None:
            return
        if self._revoked(node):
            raise _forbidden(attributes, f'node "{node}" is revoked: nothing that its virt-handler writes is believed')
        if attributes.operation != "UPDATE" or attributes.subresource != "status" or attributes.obj is None or attributes.old is None:
            raise _forbidden(attributes, f'virt-handler of node "{node}" may write nothing but the status')
        found = await self._validate(attributes.resource, node, attributes.old, attributes.obj)
        if found:
            raise _refusal(attributes, node, found)

    def _node(self, attributes: Attributes) -> str | None:
        """Return the node that the token of the request is bound to; None if none is needed and it names none.

        Raises:
            Forbidden: it says none, several, or one that cannot be.
        """
        claims = attributes.user.extra.get(names.NODE_CLAIM, ())
        if len(claims) == 1 and claims[0] and not subdomain_errors(claims[0]):
            return claims[0]
        if not claims and not self._required:
            return None
        problem = "does not name the one node of its pod" if claims else "names no node"
        raise _forbidden(
            attributes,
            f"the token of virt-handler {problem} (extra {names.NODE_CLAIM}): kube-apiserver 1.30 and later says it of tokens that are "
            "bound to pods; virt-api --no-require-node-claims trusts every virt-handler with every node",
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
        """Return an object as of now; None if there is none."""
        try:
            return (await self._stores[resource].get(namespace, name)).object
        except NotFound:
            return None

    def _addresses_on(self, node: str) -> frozenset[str]:
        known = frozenset(str(found) for each in self._addresses(node) if (found := forms.pod_ip(each)) is not None)
        if not known:
            details = metadata.details(MIGRATIONS, "", retry_after_seconds=2)
            raise ServiceUnavailable(f'it is not known where virt-handler of node "{node}" is, which status.targetAddress says', details)
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
