"""Sources of disks with a service account's token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pydantic import Field

from apiserver.apis.meta.schema import Int64, Model
from apiserver.apis.meta.validation import FieldError, Path, forbidden, invalid, required, too_long
from apiserver.apis.virt.hardware import cloud_init as made
from apiserver.apis.virt.spec import service_accounts
from apiserver.apis.virt.v1alpha1.domain import cloud_init
from apiserver.apis.virt.v1alpha1.domain.rules import Object, validate_between

FIELDS: Final = frozenset({"name", "audience", "expirationSeconds", "volumeLabel"})
MAX_AUDIENCE: Final = 253


class TokenSource(Model):
    """Fields of the source of a disk with a service account's token."""

    audience: str | None = Field(None, description="ServiceAccount: the token's audience. Default: kube-apiserver.")
    expiration_seconds: Int64 | None = Field(
        None,
        description="ServiceAccount: seconds that the token is valid, from 600 to the maximum that kube-apiserver grants. The disk has "
        "the token of the machine's start and is not updated while the machine runs. The token expires with the machine's pod. Default "
        "31536000, a year.",
    )


def validate_source(source: Object, path: Path) -> list[FieldError]:
    """Return errors in ``source`` of a disk with a ServiceAccount's token."""
    found = cloud_init.validate_files(made.SERVICE_ACCOUNT, source, path)
    seconds, audience = source.get("expirationSeconds"), source.get("audience")
    if seconds is not None:
        bounds = service_accounts.LEAST_EXPIRATION, service_accounts.LARGEST_EXPIRATION
        found += validate_between(seconds, *bounds, path.child("expirationSeconds"))
    if audience is not None:
        found += _validate_audience(audience, path.child("audience"))
    return found


def validate_single(disks: Sequence[Object], path: Path) -> list[FieldError]:
    """Return errors for further service account disks, because a pod has one account."""
    places = [position for position, disk in enumerate(disks) if disk.get("type") == made.SERVICE_ACCOUNT]
    return [forbidden(path.index(each).child("type"), "a machine can have only one disk of a service account") for each in places[1:]]


def _validate_audience(audience: str, path: Path) -> list[FieldError]:
    if not audience:
        return [required(path, "or omit it")]
    if len(audience) > MAX_AUDIENCE:
        return [too_long(path, MAX_AUDIENCE)]
    return [] if audience.isprintable() else [invalid(path, audience, "must consist of printable characters")]
