"""Plans the rotation of an authority and of everything that depends on it. Pure.

The Secret of an authority holds the signing pair ``tls.crt``/``tls.key`` and ``ca.crt``, the bundle that everybody must trust.
Replacing an authority never breaks a connection, because each step waits until all have what the next step needs:

====================  ==================  =======================  ==============================================
step                  signs               bundle                   continues when
====================  ==================  =======================  ==============================================
at rest               old                 old                      less than a third of its lifetime is left
staged                old                 old, next                every consumer has had the bundle for ``spread``
promoted              next                next, old                every leaf is signed again and ``spread`` has passed;
                                                                   for the nodes' authority, a node certificate's lifetime
at rest               next                next
====================  ==================  =======================  ==============================================

The step is determined from the Secret, so a crash between two writes loses nothing. A missing or unusable authority is replaced at once,
both at installation and to revoke one.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeAlias

from apiserver.apis.meta import times
from certs import reading, renewal
from certs.issuing import Pair, Profile
from certs.reading import Certificate
from certs.renewal import Policy, Reason

API_AUTHORITY: Final = "kubevirt-ca"
"""Secret and common name of the authority for everything except etcd. It also signs for nodes."""
CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
BUNDLE: Final = "ca.crt"
NEXT_CERTIFICATE: Final = "next.crt"
NEXT_KEY: Final = "next.key"
SPREAD_ANNOTATION: Final = "kubevirt.io/bundle-spread-since"
"""On an authority's Secret: ``<fingerprints of signer/bundle> <RFC 3339>``, when all consumers were first seen with both."""

Data: TypeAlias = Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Leaf:
    """A certificate wanted in a Secret."""

    secret: str
    profile: Profile


@dataclass(frozen=True, slots=True)
class Authority:
    """An authority wanted in a Secret, with the leaves that it signs."""

    secret: str
    common_name: str
    leaves: tuple[Leaf, ...]
    signs_for_nodes: bool = False
    """True if it also signs certificates that only their holders have and renew (``node_certificates``)."""


@dataclass(frozen=True, slots=True)
class Observed:
    """The existing Secrets of an authority and its leaves, and the fingerprint that each consumer has."""

    authority: Data | None = field(repr=False)
    """None: the Secret does not exist."""
    spread_since: str
    leaves: Mapping[str, Data] = field(repr=False)
    injected: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class MakeAuthority:
    """Create an authority, instead of a missing or unusable one; the certificates in ``retiring`` (PEM) stay trusted."""

    secret: str
    reason: Reason
    retiring: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class StageAuthority:
    """Create the next authority in the Secret, apart from the bundle, which a later plan extends."""

    secret: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class PromoteAuthority:
    """Let the staged authority sign; the old one stays in the bundle."""

    secret: str


@dataclass(frozen=True, slots=True)
class WriteBundle:
    """Set ``ca.crt`` of a Secret."""

    secret: str
    bundle: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class IssueLeaf:
    """Sign a new certificate for a leaf and store it with the bundle."""

    leaf: Leaf
    reason: Reason
    bundle: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class InjectBundle:
    """Give the bundle to a consumer that is not a Secret."""

    consumer: str
    bundle: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class MarkSpread:
    """Record that every consumer has the bundle."""

    secret: str
    annotation: str


Action: TypeAlias = MakeAuthority | StageAuthority | PromoteAuthority | WriteBundle | IssueLeaf | InjectBundle | MarkSpread


def plan(wanted: Authority, observed: Observed, now: datetime, policy: Policy) -> tuple[Action, ...]:
    """Return the writes that are possible now; none: at rest, or time must pass.

    The caller applies them in order, observes and plans again until there are none, and again periodically.
    """
    data = observed.authority or {}
    reason = renewal.authority_unusable(data.get(CERTIFICATE, b""), data.get(KEY, b""), now)
    staged = _staged(data, now)
    if reason is not None:
        if staged is not None:
            return (PromoteAuthority(wanted.secret),)
        return (MakeAuthority(wanted.secret, reason, _still_valid(data, now)),)
    signer = reading.read_certificate(data[CERTIFICATE])
    assert signer is not None  # noqa: S101 - authority_unusable has read it
    due = renewal.is_due(signer, now, policy.authority)
    if due is not None and staged is None:
        return (StageAuthority(wanted.secret, due),)
    bundle = _bundle(data, signer, staged, now)
    if data.get(BUNDLE) != bundle:
        return (WriteBundle(wanted.secret, bundle),)
    if actions := _consumers(wanted, observed, signer, bundle, now, policy):
        return actions
    return _advance(wanted, observed, signer, staged, bundle, now, policy)


def fingerprint(bundle: bytes) -> str:
    """Return the identifier of a set of authorities: 16 hexadecimal digits, independent of the order in the bundle."""
    return hashlib.sha256("".join(sorted(each.fingerprint for each in reading.read_bundle(bundle))).encode()).hexdigest()[:16]


def decoded(value: object) -> bytes:
    """Decode base64 of a Secret's ``data``; empty if absent or not decodable."""
    try:
        return base64.b64decode(str(value or ""))
    except ValueError:
        return b""


def encoded(value: bytes) -> str:
    """Return bytes in base64, for a Secret's ``data`` or a ``caBundle``."""
    return base64.b64encode(value).decode()


def staged_pair(data: Data) -> Pair:
    """Return certificate and key of the next authority, staged in a Secret's data. Raises KeyError without one."""
    return Pair(data[NEXT_CERTIFICATE], data[NEXT_KEY])


def _consumers(
    wanted: Authority, observed: Observed, signer: Certificate, bundle: bytes, now: datetime, policy: Policy
) -> tuple[Action, ...]:
    actions: list[Action] = []
    for leaf in wanted.leaves:
        data = observed.leaves.get(leaf.secret, {})
        reason = renewal.needs_renewal(
            data.get(CERTIFICATE, b""), data.get(KEY, b""), now, lifetime=policy.leaf, profile=leaf.profile, authority=signer
        )
        if reason is not None:
            actions.append(IssueLeaf(leaf, reason, bundle))
        elif data.get(BUNDLE) != bundle:
            actions.append(WriteBundle(leaf.secret, bundle))
    newest = fingerprint(bundle)
    actions += [InjectBundle(consumer, bundle) for consumer, carried in sorted(observed.injected.items()) if carried != newest]
    return tuple(actions)


def _advance(
    wanted: Authority, observed: Observed, signer: Certificate, staged: Certificate | None, bundle: bytes, now: datetime, policy: Policy
) -> tuple[Action, ...]:
    if bundle == signer.pem:
        return ()
    state = f"{signer.fingerprint[:16]}/{fingerprint(bundle)}"
    mark, _, since = observed.spread_since.partition(" ")
    began = times.parsed(since) if mark == state else None
    if began is None or began > now:
        return (MarkSpread(wanted.secret, f"{state} {times.to_rfc3339_micro(now)}"),)
    if staged is not None:
        return () if now - began < policy.spread else (PromoteAuthority(wanted.secret),)
    # Nodes renew their certificates themselves, so the old authority stays trusted for a certificate's lifetime.
    trusted = max(policy.spread, policy.node) if wanted.signs_for_nodes else policy.spread
    return () if now - began < trusted else (WriteBundle(wanted.secret, signer.pem),)


def _staged(data: Data, now: datetime) -> Certificate | None:
    pair = data.get(NEXT_CERTIFICATE, b""), data.get(NEXT_KEY, b"")
    return None if renewal.authority_unusable(*pair, now) else reading.read_certificate(pair[0])


def _bundle(data: Data, signer: Certificate, staged: Certificate | None, now: datetime) -> bytes:
    first = (signer,) if staged is None else (signer, staged)
    known = {each.fingerprint for each in first}
    old = (each for each in reading.read_bundle(data.get(BUNDLE, b"")) if each.authority and each.not_after > now)
    return reading.write_bundle((*first, *(each for each in old if each.fingerprint not in known)))


def _still_valid(data: Data, now: datetime) -> bytes:
    """Return the bundle's unexpired authorities (PEM), because certificates that they issued may be in use."""
    return reading.write_bundle(
        tuple(each for each in reading.read_bundle(data.get(BUNDLE, b"")) if each.authority and each.not_after > now)
    )
