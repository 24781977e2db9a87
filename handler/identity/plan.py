"""Decides when this node requests a certificate, from its state and the time. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from apiserver.apis.virt.rights import trust
from certs.validity import SKEW

EARLIEST: Final = 0.6
LATEST: Final = 0.72
"""Certificates are renewed between these parts of their lives, because nodes are often installed together."""
LOOK_AGAIN: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Held:
    """The validity of this node's certificate, which our authorities accept."""

    not_before: datetime
    not_after: datetime


@dataclass(frozen=True, slots=True)
class Observed:
    """The input of :func:`plan`."""

    held: Held | None
    """None if missing, or if others would not accept it."""
    has_authorities: bool
    refusal: str
    """Why ``held`` is revoked, or empty."""
    is_revoked: bool
    """This node may get no certificates."""
    spread: float
    """Time of renewal, between ``EARLIEST`` (0) and ``LATEST`` (1)."""


@dataclass(frozen=True, slots=True)
class RequestCertificate:
    """Request a certificate."""

    reason: str


@dataclass(frozen=True, slots=True)
class Requeue:
    """Decide again after this time, or when something changes."""

    seconds: float


Action: TypeAlias = RequestCertificate | Requeue


def plan(observed: Observed, now: datetime) -> Action:
    """Return the action: RequestCertificate, or Requeue with the seconds until the next decision."""
    if observed.is_revoked or not observed.has_authorities:
        return Requeue(LOOK_AGAIN.total_seconds())
    held = observed.held
    if held is None:
        return RequestCertificate("there is no valid certificate")
    if observed.refusal:
        return RequestCertificate(observed.refusal)
    due = renewed_at(held, observed.spread)
    return RequestCertificate("it expires soon") if now >= due else Requeue(min(due - now, LOOK_AGAIN).total_seconds())


def renewed_at(held: Held, spread: float) -> datetime:
    """Return when a certificate is renewed: after 60 (``spread`` 0) to 72 % (1) of its life without the backdated part."""
    life = held.not_after - held.not_before
    life = life - SKEW if life > SKEW else life
    return held.not_after - life * (1 - (EARLIEST + (LATEST - EARLIEST) * spread))


def problem(observed: Observed, now: datetime) -> str:
    """Return why others do not accept this node's certificate; else empty."""
    held = observed.held
    if observed.is_revoked:
        return "this node is revoked"
    if not observed.has_authorities:
        return f"the trusted authorities are not known yet (ConfigMap {trust.CONFIG_MAP})"
    if held is None:
        return "there is no certificate yet"
    if observed.refusal:
        return observed.refusal
    return "the certificate has expired" if now >= held.not_after else ""
