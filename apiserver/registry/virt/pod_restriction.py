"""PodRestriction: a status may only name pods of its own machine, for every writer (``docs/decisions/security.md``).

A new ``podUID`` of a VirtualMachine, or ``targetPodUID`` of a Migration, is checked against kube-apiserver's pod, the
only source of its node and mounts (:mod:`apiserver.apis.virt.rights.pod_rights`); so are a Migration's
``targetPodIPs``, and a pod with a claim for a running guest (``status.volumeStatus``), because virt-handler takes its
mount.

Exempt is the end of a live migration, because the guest waits: the machine gets its Migration's checked pod.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from apiserver.apis.core.resources import PODS
from apiserver.apis.meta import objects
from apiserver.apis.meta.errors import Forbidden, NotFound, ServiceUnavailable, StatusError
from apiserver.apis.meta.names import subdomain_errors
from apiserver.apis.meta.objects import Object, dig
from apiserver.apis.meta.resources import Resource
from apiserver.apis.meta.validation import Path, forbidden, shortened
from apiserver.apis.virt.places import names
from apiserver.apis.virt.places.resources import MIGRATIONS, VIRTUAL_MACHINES
from apiserver.apis.virt.rights import pod_rights
from apiserver.apis.virt.spec import hot_plug
from apiserver.client.rest import Client, TransportError
from apiserver.registry.generic import metadata
from apiserver.registry.generic.admission import Attributes, Operation
from apiserver.registry.generic.store import Store

MAX_CAUSES: Final = 16
"""In one error."""
SECONDS: Final = 10.0
"""For a request to kube-apiserver."""
_FIELDS: Final[Mapping[str, tuple[str, str]]] = {
    VIRTUAL_MACHINES.plural: ("podName", "podUID"),
    MIGRATIONS.plural: ("targetPod", "targetPodUID"),
}
_ADDRESSES: Final = "targetPodIPs"


class PodRestriction:
    """The admission plug-in PodRestriction."""

    name = "PodRestriction"

    def __init__(self, client: Client) -> None:
        self._client = client
        self._stores: Mapping[Resource, Store] = {}

    def follow(self, stores: Mapping[Resource, Store]) -> None:
        """Set the stores, to read related objects."""
        self._stores = stores

    def handles(self, operation: Operation, resource: Resource, subresource: str) -> bool:
        """Return whether the request creates or updates a machine or Migration."""
        del subresource
        return resource.group == names.GROUP and resource.plural in _FIELDS and operation in ("CREATE", "UPDATE")

    async def mutate(self, attributes: Attributes) -> None:
        """Change nothing."""

    async def validate(self, attributes: Attributes) -> None:
        """Refuse a status that newly names a wrong pod or pod address.

        Raises Forbidden with reasons, ServiceUnavailable without kube-apiserver.
        """
        await self._validate_pod(attributes)
        if attributes.resource.plural == VIRTUAL_MACHINES.plural:
            await self._validate_attachments(attributes)
        if attributes.resource.plural == MIGRATIONS.plural:
            await self._validate_addresses(attributes)

    async def _validate_addresses(self, attributes: Attributes) -> None:
        given = dig(attributes.obj, "status", _ADDRESSES) or ()
        name, uid = (str(dig(attributes.obj, "status", each) or "") for each in _FIELDS[MIGRATIONS.plural])
        same_pod = uid == str(dig(attributes.old, "status", _FIELDS[MIGRATIONS.plural][1]) or "")
        if not given or (same_pod and given == dig(attributes.old, "status", _ADDRESSES)):
            return
        if found := pod_rights.strange_addresses(await self._pod(attributes, name), uid, given):
            raise _refusal(attributes, _ADDRESSES, found)

    async def _validate_pod(self, attributes: Attributes) -> None:
        pod_name, pod_uid = (str(dig(attributes.obj, "status", each) or "") for each in _FIELDS[attributes.resource.plural])
        if not pod_uid or pod_uid == dig(attributes.old, "status", _FIELDS[attributes.resource.plural][1]):
            return
        machine = await self._machine(attributes, pod_uid)
        if machine is None:
            return
        pod = await self._pod(attributes, pod_name)
        if found := pod_rights.objections(machine, pod, pod_name, pod_uid):
            raise _refusal(attributes, _FIELDS[attributes.resource.plural][1], found)

    async def _validate_attachments(self, attributes: Attributes) -> None:
        obj: Object = attributes.obj or {}
        known = {dig(each, "hotplugVolume", "attachPodUID") for each in dig(attributes.old, "status", hot_plug.FIELD) or ()}
        for entry in hot_plug.entries(obj):
            if (uid := dig(entry, "hotplugVolume", "attachPodUID")) and uid not in known:
                pod = await self._pod(attributes, str(dig(entry, "hotplugVolume", "attachPodName") or ""))
                if found := pod_rights.attachment_objections(obj, entry, pod):
                    raise _refusal(attributes, hot_plug.FIELD, found)

    async def _machine(self, attributes: Attributes, pod_uid: str) -> Object | None:
        """Return the written machine, or the one that the written Migration selects; raises a refusal if that does not exist.

        None if the machine's Migration brings this pod, and so was checked already.
        """
        obj: Object = attributes.obj or {}
        namespace = objects.namespace_of(obj)
        if attributes.resource.plural == VIRTUAL_MACHINES.plural:
            migration = await self._read(MIGRATIONS, namespace, str(dig(obj, "status", "migration", "name") or ""))
            return None if migration is not None and pod_rights.brings(migration, obj, pod_uid) else obj
        machine = await self._read(VIRTUAL_MACHINES, namespace, str(dig(obj, "spec", "selector", "name") or ""))
        if machine is None:
            raise _refusal(attributes, _FIELDS[attributes.resource.plural][1], ["the virtual machine of the Migration does not exist"])
        return machine

    async def _read(self, resource: Resource, namespace: str, name: str) -> Object | None:
        if not name:
            return None
        try:
            return (await self._stores[resource].get(namespace, name)).object
        except NotFound:
            return None

    async def _pod(self, attributes: Attributes, name: str) -> Object | None:
        if not name or subdomain_errors(name):
            return None
        try:
            async with asyncio.timeout(SECONDS):
                return await self._client.get(PODS, name, objects.namespace_of(attributes.obj or {}))
        except NotFound:
            return None
        except (StatusError, TransportError, TimeoutError) as error:
            details = metadata.details(attributes.resource, _name(attributes), retry_after_seconds=1)
            said = str(error) or "no answer in time"
            raise ServiceUnavailable(f"cannot read pod {name}, which the status names: {said}", details) from error


def _refusal(attributes: Attributes, field: str, found: Sequence[str]) -> Forbidden:
    path = Path("status").child(field)
    texts, causes = shortened([forbidden(path, each) for each in found], MAX_CAUSES)
    resource, name = attributes.resource, _name(attributes)
    details = replace(metadata.details(resource, name), causes=causes)
    return Forbidden(f'{metadata.qualified(resource)} "{name}" is forbidden: [{", ".join(texts)}]', details)


def _name(attributes: Attributes) -> str:
    return attributes.name or objects.name_of(attributes.obj or {}) or "Unknown"
