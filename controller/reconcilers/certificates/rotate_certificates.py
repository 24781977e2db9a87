"""Makes and renews the Secrets listed in docs/development/interfaces.md, and writes their authority into the APIService.

Each pass observes, plans (``certificate_plan``) and applies until the plan is empty. It uses none of the certificates, so it works at
installation and after everything expired.

Every write is a creation or carries the observed resourceVersion, so of two leaders, one gets a Conflict. A Secret of another ``type`` is
replaced, because the type is immutable.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, assert_never

from apiserver.apis.core.resources import SECRETS
from apiserver.apis.meta import errors
from apiserver.apis.meta.objects import Object, annotations_of, dig, resource_version_of
from apiserver.client.rest import Client, TransportError
from certs import issuing
from certs.issuing import Pair, Profile
from certs.renewal import Policy
from controller.reconcilers.certificates import certificate_plan
from controller.reconcilers.certificates.certificate_plan import (
    BUNDLE,
    CERTIFICATE,
    KEY,
    NEXT_CERTIFICATE,
    NEXT_KEY,
    SPREAD_ANNOTATION,
    Action,
    Authority,
    InjectBundle,
    IssueLeaf,
    Leaf,
    MakeAuthority,
    MarkSpread,
    Observed,
    PromoteAuthority,
    StageAuthority,
    WriteBundle,
)  # fmt: skip
from controller.reconcilers.certificates.consumers import (
    API_SERVICE_NAMES,
    ETCD,
    LABELS,
    ApiServiceBundle,
    Consumer,
    EtcdRestart,
    TrustBundle,
)

logger = logging.getLogger(__name__)

OBSOLETE: Final = "kubevirt-virt-handler-tls"
"""A key for all nodes, from older versions."""
TLS_TYPE: Final = "kubernetes.io/tls"
INTERVAL_SECONDS: Final = 30.0
"""Also until a deleted Secret is restored. A pass costs seven small reads."""
MAX_ROUNDS: Final = 8
"""Plans per pass; at most five are needed from an empty cluster."""


def authorities(namespace: str) -> tuple[Authority, Authority]:
    """Return the release's authorities, with the certificates that they issue: our API's, and etcd's."""
    api = _service("virt-api", namespace)
    etcd = (*_service(ETCD, namespace), f"*.{ETCD}-peers.{namespace}.svc")
    local = ("127.0.0.1", "::1")
    return (
        Authority(
            certificate_plan.API_AUTHORITY,
            certificate_plan.API_AUTHORITY,
            (
                Leaf("kubevirt-virt-api-tls", Profile("virt-api", (*api, "localhost"), local, server=True, client=True)),
                Leaf(
                    "kubevirt-virt-controller-tls",
                    Profile("virt-controller", (*_service("virt-controller", namespace), "localhost"), server=True),
                ),
            ),
            signs_for_nodes=True,
        ),
        Authority(
            "kubevirt-etcd-ca",
            "kubevirt-etcd-ca",
            (
                # Members also present it to each other, and etcd's own gateway connects to itself with it.
                Leaf("kubevirt-etcd-server-tls", Profile("etcd", (*etcd, "localhost"), local, server=True, client=True)),
                Leaf("kubevirt-etcd-client-tls", Profile("virt-api", client=True)),
            ),
        ),
    )


def _service(name: str, namespace: str) -> tuple[str, ...]:
    return name, f"{name}.{namespace}", f"{name}.{namespace}.svc", f"{name}.{namespace}.svc.cluster.local"


@dataclass(slots=True)
class _Seen:
    secrets: dict[str, Object | None] = field(repr=False)

    def data(self, name: str) -> dict[str, bytes] | None:
        secret = self.secrets[name]
        if secret is None:
            return None
        return {key: certificate_plan.decoded(value) for key, value in (secret.get("data") or {}).items()}


class CertificateRotation:
    """Keeps the release's authorities and certificates valid, except nodes' certificates, on the leader."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        *,
        policy: Policy | None = None,
        consumers: Mapping[str, Consumer] | None = None,
        interval: float = INTERVAL_SECONDS,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """``consumers`` are further consumers of our API's authorities, by name."""
        self._client = client
        self._namespace = namespace
        self._policy = policy or Policy()
        self._interval = interval
        self._clock = clock
        self._cleaned_up = False
        api, etcd = authorities(namespace)
        services = {f"APIService {each}": ApiServiceBundle(client, each) for each in API_SERVICE_NAMES}
        self._wanted: tuple[tuple[Authority, Mapping[str, Consumer]], ...] = (
            (api, {**services, "ConfigMap": TrustBundle(client, namespace), **(consumers or {})}),
            (etcd, {"StatefulSet": EtcdRestart(client, namespace)}),
        )

    async def run(self) -> None:
        """Reconcile every ``interval`` seconds until cancelled, also after errors of the API server."""
        while True:
            try:
                await self.reconcile()
            except (errors.StatusError, TransportError) as error:
                logger.warning("cannot renew certificates, retrying", extra={"error": str(error)})
            await asyncio.sleep(self._interval)

    async def reconcile(self) -> None:
        """Take the steps that are possible now for every Secret and consumer, and delete the Secret ``OBSOLETE``.

        A StatusError for one authority is raised after the other's steps; a Conflict waits for the next pass. Raises TransportError.
        """
        failure: errors.StatusError | None = None
        for wanted, consumers in self._wanted:
            try:
                await self._reconcile(wanted, consumers)
            except (errors.Conflict, errors.AlreadyExists):
                logger.info("another client changed the Secret, retrying", extra={"secret": wanted.secret})
            except errors.StatusError as error:
                failure = error
        if failure is not None:
            raise failure
        if not self._cleaned_up:
            with contextlib.suppress(errors.NotFound):
                await self._client.delete(SECRETS, OBSOLETE, self._namespace)
            self._cleaned_up = True

    async def _reconcile(self, wanted: Authority, consumers: Mapping[str, Consumer]) -> None:
        for _ in range(MAX_ROUNDS):
            seen = await self._read(wanted)
            injected = {name: carried for name, each in consumers.items() if (carried := await each.fingerprint()) is not None}
            authority = seen.secrets[wanted.secret]
            observed = Observed(
                authority=seen.data(wanted.secret),
                spread_since=annotations_of(authority or {}).get(SPREAD_ANNOTATION, ""),
                leaves={leaf.secret: data for leaf in wanted.leaves if (data := seen.data(leaf.secret)) is not None},
                injected=injected,
            )
            actions = certificate_plan.plan(wanted, observed, self._clock(), self._policy)
            if not actions:
                return
            for action in actions:
                await self._apply(action, wanted, seen, consumers)
            if all(isinstance(action, InjectBundle) for action in actions):
                return  # consumers may take minutes; later passes check
        logger.error("certificates still need changes after every round, retrying later", extra={"secret": wanted.secret})

    async def _read(self, wanted: Authority) -> _Seen:
        found: dict[str, Object | None] = {}
        for name in (wanted.secret, *(leaf.secret for leaf in wanted.leaves)):
            try:
                found[name] = await self._client.get(SECRETS, name, self._namespace)
            except errors.NotFound:
                found[name] = None
        return _Seen(found)

    async def _apply(self, action: Action, wanted: Authority, seen: _Seen, consumers: Mapping[str, Consumer]) -> None:
        now = self._clock()
        old = seen.data(wanted.secret) or {}
        match action:
            case MakeAuthority(secret, reason, retiring):
                pair = issuing.new_authority(wanted.common_name, self._policy.authority, now)
                data = {CERTIFICATE: pair.certificate, KEY: pair.key, BUNDLE: pair.certificate + retiring}
                await self._write(seen, secret, data, f"created a new authority; the old one: {reason}")
            case StageAuthority(secret, reason):
                pair = issuing.new_authority(wanted.common_name, self._policy.authority, now)
                data = {**old, NEXT_CERTIFICATE: pair.certificate, NEXT_KEY: pair.key}
                await self._write(seen, secret, data, f"created the next authority; the current one: {reason}")
            case PromoteAuthority(secret):
                pair = certificate_plan.staged_pair(old)
                data = {CERTIFICATE: pair.certificate, KEY: pair.key, BUNDLE: pair.certificate + old.get(BUNDLE, b"")}
                await self._write(seen, secret, data, "the next authority signs from now on")
            case WriteBundle(secret, bundle):
                await self._write(seen, secret, {**(seen.data(secret) or {}), BUNDLE: bundle}, "distribute the trusted authorities")
            case IssueLeaf(leaf, reason, bundle):
                pair = issuing.issue(Pair(old[CERTIFICATE], old[KEY]), leaf.profile, self._policy.leaf, now)
                data = {CERTIFICATE: pair.certificate, KEY: pair.key, BUNDLE: bundle}
                await self._write(seen, leaf.secret, data, f"issued a certificate; the old one: {reason}")
            case InjectBundle(consumer, bundle):
                logger.info("distributing the trusted authorities", extra={"consumer": consumer})
                await consumers[consumer].inject(bundle)
            case MarkSpread(secret, annotation):
                await self._write(seen, secret, old, "all consumers have the trusted authorities", {SPREAD_ANNOTATION: annotation})
            case _:
                assert_never(action)

    async def _write(
        self, seen: _Seen, name: str, data: Mapping[str, bytes], purpose: str, annotations: Mapping[str, str] | None = None
    ) -> None:
        logger.info("wrote a Secret", extra={"secret": name, "purpose": purpose})
        current = seen.secrets[name]
        if current is not None and current.get("type") != TLS_TYPE:
            version = {"preconditions": {"resourceVersion": resource_version_of(current)}}
            await self._client.delete(SECRETS, name, self._namespace, options={"kind": "DeleteOptions", "apiVersion": "v1", **version})
            current = None
        metadata = {"name": name, "namespace": self._namespace, "labels": dict(LABELS)}
        if current is not None:
            metadata["resourceVersion"] = resource_version_of(current)
            metadata["labels"] = {**(dig(current, "metadata", "labels") or {}), **LABELS}
        if notes := {**annotations_of(current or {}), **(annotations or {})}:
            metadata["annotations"] = notes
        encoded = {key: certificate_plan.encoded(value) for key, value in data.items()}
        secret = {"apiVersion": "v1", "kind": "Secret", "type": TLS_TYPE, "metadata": metadata, "data": encoded}
        if current is None:
            seen.secrets[name] = await self._client.create(SECRETS, secret, self._namespace)
        else:
            seen.secrets[name] = await self._client.update(SECRETS, secret)
