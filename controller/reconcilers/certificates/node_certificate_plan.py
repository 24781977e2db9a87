"""Decides about a CertificateSigningRequest of a virt-handler. Pure.

kube-apiserver writes the requester into ``spec`` (``username``, ``extra``). For a token bound to a pod, ``extra`` has the pod's node
(KEP-4193). So a node obtains a certificate only for its own name.

====================  ==================================================
request               action
====================  ==================================================
decided               none
valid, not approved   :class:`Approve`
valid, approved       :class:`Sign`
invalid               :class:`Deny`, or :class:`Fail` if approved
====================  ==================================================
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeAlias

from cryptography.hazmat.primitives.asymmetric import ec

from apiserver.apis.meta import objects, times
from apiserver.apis.virt.places import names
from apiserver.apis.virt.rights import trust
from apiserver.apis.virt.rights.trust import Revocations
from certs import requests
from certs.issuing import Profile
from certs.validity import SKEW

MAX_MESSAGE: Final = 1000


@dataclass(frozen=True, slots=True)
class Nothing:
    """Do nothing: the request is already decided, or not for our signer."""


@dataclass(frozen=True, slots=True)
class Approve:
    """Approve the request: the requester is the node named in the certificate."""

    node: str


@dataclass(frozen=True, slots=True)
class Sign:
    """Issue the certificate."""

    node: str
    profile: Profile
    public_key: ec.EllipticCurvePublicKey = field(repr=False)


@dataclass(frozen=True, slots=True)
class Deny:
    """Refuse permanently, with the reason."""

    message: str


@dataclass(frozen=True, slots=True)
class Fail:
    """Refuse to sign a request that is already approved, with the reason."""

    message: str


Action: TypeAlias = Nothing | Approve | Sign | Deny | Fail


def is_open(request: Mapping[str, Any]) -> bool:
    """Return whether the request is for our signer, and not signed, denied or failed."""
    if objects.dig(request, "spec", "signerName") != names.HANDLER_SIGNER:
        return False
    return not objects.dig(request, "status", "certificate") and not _conditions(request) & {"Denied", "Failed"}


def plan(request: Mapping[str, Any], namespace: str, revocations: Revocations, now: datetime) -> Action:
    """Return Approve, Sign, Deny, Fail or Nothing for the request; ``namespace`` is the installation's."""
    if not is_open(request):
        return Nothing()
    verified = _verify(request["spec"], namespace, revocations, now)
    approved = "Approved" in _conditions(request)
    if isinstance(verified, str):
        return Fail(verified[:MAX_MESSAGE]) if approved else Deny(verified[:MAX_MESSAGE])
    return verified if approved else Approve(verified.node)


def _conditions(request: Mapping[str, Any]) -> set[str]:
    return {str(objects.dig(each, "type")) for each in objects.dig(request, "status", "conditions") or ()}


def profile_of(node: str) -> Profile:
    """Return the profile of a virt-handler's certificate. Raises ValueError if the node's name cannot be in one."""
    return Profile(names.HANDLER, (names.handler_server_name(node),), server=True, client=True)


def _verify(spec: Mapping[str, Any], namespace: str, revocations: Revocations, now: datetime) -> Sign | str:
    if spec.get("username") != (account := names.handler_username(namespace)):
        return f"only {account} may request certificates of this signer"
    match objects.dig(spec, "extra", names.NODE_CLAIM):
        case [str(node)]:
            pass
        case _:
            return "the requester's token is not bound to a pod on one node"
    try:
        profile = profile_of(node)
    except ValueError as error:
        return str(error)
    if revocations.is_revoked(node):
        return f"node {node} is revoked (ConfigMap {trust.CONFIG_MAP})"
    since = revocations.nodes.get(node)
    if since is not None and since > now + SKEW:  # such a certificate would not be valid or trusted yet
        return f"node {node} is revoked until {times.to_rfc3339(since)} (ConfigMap {trust.CONFIG_MAP})"
    usages = spec.get("usages")
    if not isinstance(usages, list) or len(usages) != len(names.HANDLER_USAGES) or any(each not in usages for each in names.HANDLER_USAGES):
        return f"spec.usages must be {', '.join(sorted(names.HANDLER_USAGES))}"
    verified = requests.verify(_decode(spec.get("request")), profile)
    if verified.public_key is None:
        return f"the request is not one for node {node}: {'; '.join(verified.faults)}"
    return Sign(node, profile, verified.public_key)


def _decode(value: object) -> bytes:
    try:
        return base64.b64decode(str(value or ""), validate=True)
    except (binascii.Error, ValueError):
        return b""
