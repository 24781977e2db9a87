"""Models and rules of ``spec.accessCredentials``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from pydantic import Field

from apiserver.apis.meta.schema import ATOMIC, Model
from apiserver.apis.meta.validation import FieldError, Path, duplicate, forbidden, invalid, required
from apiserver.apis.virt.hardware import disks
from apiserver.apis.virt.spec import access_credentials
from apiserver.apis.virt.v1alpha1.domain.cloud_init import validate_object_name
from apiserver.apis.virt.v1alpha1.domain.rules import Object, validate_count

MAX_CREDENTIALS: Final = 16
MAX_USERS: Final = 16

_USER: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.$-]{0,63}")


class SecretSource(Model):
    """A Secret with lists of public keys as values."""

    secret_name: str = Field(description="The Secret's name in the same namespace; each line of each value is a public key.")


class AccessCredentialSource(Model):
    """The source of the public keys."""

    secret: SecretSource = Field(description="A Secret.")


class NoCloudPropagation(Model):
    """Puts the keys into the meta data of the CloudInitNoCloud disk."""


class ConfigDrivePropagation(Model):
    """Puts the keys into the meta data of the CloudInitConfigDrive disk."""


class GuestAgentPropagation(Model):
    """Replaces all public keys of these users by the guest agent, in a running guest."""

    users: list[str] = Field(
        description="Users of the guest that get the keys. The guest agent removes all other keys of a user.",
        json_schema_extra=ATOMIC,
    )


class PropagationMethod(Model):
    """How public keys get into the guest: one of the fields."""

    no_cloud: NoCloudPropagation | None = Field(
        None, description="In the meta data of the disk of type CloudInitNoCloud: the guest takes them at its first boot."
    )
    config_drive: ConfigDrivePropagation | None = Field(
        None, description="In the meta data of the disk of type CloudInitConfigDrive: the guest takes them at its first boot."
    )
    qemu_guest_agent: GuestAgentPropagation | None = Field(
        None,
        description="The QEMU guest agent replaces all public keys of these users. A running guest follows changes of the Secret.",
    )


class SSHPublicKey(Model):
    """Public keys, and how they get into the guest."""

    source: AccessCredentialSource = Field(description="Source of the keys.")
    propagation_method: PropagationMethod = Field(description="How the guest gets the keys.")


class AccessCredential(Model):
    """A right to log in to the guest."""

    ssh_public_key: SSHPublicKey = Field(description="Public keys for SSH.")


def validate(spec: Object, path: Path) -> list[FieldError]:
    """Return errors in ``accessCredentials``, also for a missing disk that passes them; ``path`` is the spec's."""
    given, path = spec.get("accessCredentials") or [], path.child("accessCredentials")
    found = validate_count(given, MAX_CREDENTIALS, path)
    made = {each["type"]: each.get("source") or {} for each in disks.defaulted(spec.get("domain") or {}) if each.get("type")}
    for position, element in enumerate(given):
        key = element.get("sshPublicKey") or {}
        place = path.index(position).child("sshPublicKey")
        name = ((key.get("source") or {}).get("secret") or {}).get("secretName") or ""
        found += validate_object_name("Secret", name, place.child("source", "secret", "secretName"))
        found += _validate_method(key.get("propagationMethod") or {}, made, place.child("propagationMethod"))
    return found


def _validate_method(given: Object, made: Mapping[str, Any], path: Path) -> list[FieldError]:
    methods = [each for each in access_credentials.METHODS if given.get(each) is not None]
    if not methods:
        return [required(path, f"one of {', '.join(PropagationMethod.model_json_schema()['properties'])}")]
    found = [forbidden(path.child(each), f"may not be set together with {methods[0]}") for each in methods[1:]]
    if methods[0] == access_credentials.GUEST_AGENT:
        return found + _validate_users(given[methods[0]].get("users") or [], path.child(methods[0], "users"))
    kind = access_credentials.DISKS.get(methods[0], "")
    if kind and kind not in made:
        found.append(forbidden(path.child(methods[0]), f"requires a disk of type {kind}, which passes the keys to the guest"))
    elif kind and any(field.startswith("metaData") for field in made[kind]):
        text = "may not be set together with meta data of the disk's source; put the keys into that meta data"
        found.append(forbidden(path.child(methods[0]), text))
    return found


def _validate_users(users: list[str], path: Path) -> list[FieldError]:
    if not users:
        return [required(path, "the users of the guest that get the keys")]
    found = validate_count(users, MAX_USERS, path)
    text = "must be the name of a user: at most 64 alphanumeric characters, '_', '.', '$' or '-', beginning with a letter, digit or '_'"
    for position, user in enumerate(users):
        if not _USER.fullmatch(user):
            found.append(invalid(path.index(position), user, text))
        elif user in users[:position]:
            found.append(duplicate(path.index(position), user))
    return found
