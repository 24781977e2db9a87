"""Consumers of the trusted authorities: objects, besides Secrets, that have a copy of the bundle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from apiserver.apis.core.resources import API_SERVICES, CONFIG_MAPS
from apiserver.apis.meta import errors
from apiserver.apis.meta.objects import Object, annotations_of, dig
from apiserver.apis.meta.resources import Resource
from apiserver.apis.virt.places import names
from apiserver.apis.virt.rights import trust
from apiserver.client.rest import Client
from controller.reconcilers.certificates import certificate_plan
from controller.reconcilers.settings import FIELD_MANAGER

STATEFUL_SETS: Final = Resource("apps", "v1", "statefulsets", "StatefulSet")
API_SERVICE: Final = f"{names.VERSION}.{names.GROUP}"
API_SERVICE_NAMES: Final = (API_SERVICE,)
"""Of all served versions."""
ETCD: Final = "kubevirt-etcd"
ETCD_BUNDLE_ANNOTATION: Final = "kubevirt.io/ca-bundle"
"""On etcd's StatefulSet, and in its pod template, where a change replaces the pods."""
LABELS: Final = {"app.kubernetes.io/part-of": "kubevirt", "app.kubernetes.io/managed-by": "virt-controller"}


class Consumer(Protocol):
    """An object other than a Secret with a copy of the trusted authorities."""

    async def fingerprint(self) -> str | None:
        """Return the fingerprint of the bundle that the object uses now, empty if none; None: no such object, so inject nothing."""

    async def inject(self, bundle: bytes) -> None:
        """Give the object the bundle (PEM), or its fingerprint to restart pods that read the bundle elsewhere.

        Raises StatusError, TransportError.
        """


@dataclass(frozen=True, slots=True)
class ApiServiceBundle:
    """``spec.caBundle`` of our APIService; kube-apiserver verifies virt-api by it."""

    client: Client
    name: str = API_SERVICE

    async def fingerprint(self) -> str | None:
        """Return the fingerprint of ``caBundle``; empty if verification is off, None without the APIService."""
        try:
            service = await self.client.get(API_SERVICES, self.name)
        except errors.NotFound:
            return None
        if dig(service, "spec", "insecureSkipTLSVerify"):
            return ""
        return certificate_plan.fingerprint(certificate_plan.decoded(dig(service, "spec", "caBundle")))

    async def inject(self, bundle: bytes) -> None:
        """Write ``caBundle``, and turn verification on."""
        patch = {"spec": {"caBundle": certificate_plan.encoded(bundle), "insecureSkipTLSVerify": False}}
        await self.client.patch(API_SERVICES, self.name, patch, field_manager=FIELD_MANAGER)


@dataclass(frozen=True, slots=True)
class TrustBundle:
    """``ca.crt`` of the ConfigMap that virt-handlers read (``apiserver.apis.virt.rights.trust``). The operator owns its other keys."""

    client: Client
    namespace: str
    name: str = trust.CONFIG_MAP

    async def fingerprint(self) -> str:
        """Return the fingerprint of the ConfigMap's bundle; empty without a ConfigMap, because ``inject`` creates it."""
        try:
            config_map = await self.client.get(CONFIG_MAPS, self.name, self.namespace)
        except errors.NotFound:
            return ""
        return certificate_plan.fingerprint(str((config_map.get("data") or {}).get(trust.AUTHORITIES, "")).encode())

    async def inject(self, bundle: bytes) -> None:
        """Write the bundle and keep the other keys; create the ConfigMap if missing."""
        data = {trust.AUTHORITIES: bundle.decode()}
        try:
            await self.client.patch(CONFIG_MAPS, self.name, {"data": data}, self.namespace, field_manager=FIELD_MANAGER)
        except errors.NotFound:
            metadata = {"name": self.name, "namespace": self.namespace, "labels": dict(LABELS)}
            config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
            await self.client.create(CONFIG_MAPS, config_map, self.namespace, field_manager=FIELD_MANAGER)


@dataclass(frozen=True, slots=True)
class EtcdRestart:
    """Restarts etcd's pods: etcd reads renewed certificates at every handshake, but trusted authorities only at start."""

    client: Client
    namespace: str
    name: str = ETCD

    async def fingerprint(self) -> str | None:
        """Return the fingerprint that all pods run with; empty while older pods remain, None without the StatefulSet."""
        try:
            stateful_set = await self.client.get(STATEFUL_SETS, self.name, self.namespace)
        except errors.NotFound:
            return None
        status = stateful_set.get("status") or {}
        rolled_out = (
            int(status.get("observedGeneration") or 0) >= int(dig(stateful_set, "metadata", "generation") or 0)
            and status.get("currentRevision") == status.get("updateRevision")
        )  # fmt: skip
        return annotations_of(stateful_set).get(ETCD_BUNDLE_ANNOTATION, "") if rolled_out else ""

    async def inject(self, bundle: bytes) -> None:
        """Record the bundle's fingerprint. If pods are ready, also put it into the pod template, which replaces them one by one.

        At installation a changed template would start them twice.
        """
        stateful_set = await self.client.get(STATEFUL_SETS, self.name, self.namespace)
        note = {"metadata": {"annotations": {ETCD_BUNDLE_ANNOTATION: certificate_plan.fingerprint(bundle)}}}
        patch: Object = dict(note)
        if dig(stateful_set, "status", "readyReplicas"):
            patch["spec"] = {"template": note}
        await self.client.patch(STATEFUL_SETS, self.name, patch, self.namespace, field_manager=FIELD_MANAGER)
