"""Shared file systems: ``devices.filesystems``."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from apiserver.apis.meta import names
from apiserver.apis.meta.schema import Model
from apiserver.apis.meta.validation import FieldError, Path, duplicate, invalid, required, too_long
from apiserver.apis.virt.hardware import disks, firmware
from apiserver.apis.virt.hardware import filesystems as hardware
from apiserver.apis.virt.v1alpha1.domain.rules import Object, validate_count, validate_device_name, validate_unique

MAX_FILESYSTEMS: Final = 8
MAX_TAG: Final = 36
"""Bytes of a virtio file system's tag (Virtual I/O Device specification 1.2, 5.11.4)."""


class FilesystemSource(Model):
    """The claim, ConfigMap or Secret with a file system's content."""

    name: str = Field(
        description="The name of the claim, ConfigMap or Secret in the same namespace. A claim's name is looked up in lower case."
    )


class Filesystem(Model):
    """A file system shared with the guest by virtiofs. Such a machine cannot migrate."""

    name: str = Field(
        description="Its name, unique in the machine, at most 36 characters. It is the tag for mounting: mount -t virtiofs <name> /mnt."
    )
    type: Literal["PersistentVolumeClaim", "ConfigMap", "Secret"] = Field(
        description="Source of the content. PersistentVolumeClaim: the whole file system of a claim. Other pods and machines can use it "
        "at the same time, but not as a writable disk. All users of the guest read and write its files as user and group 107 of the pod "
        "(also its fsGroup), which appear as root in the guest: files of other users become root's, and chown has no effect. The guest "
        "can have 65536 files in use at a time. ConfigMap, Secret: its keys as files, read-only; they follow changes of the object within "
        "minutes."
    )
    source: FilesystemSource = Field(description="Where the content is.")
    read_only: bool | None = Field(
        None, description="The guest cannot write to it. Default false, true for a ConfigMap or Secret, the only value there."
    )


def validate(domain: Object, path: Path) -> list[FieldError]:
    """Return errors in ``devices.filesystems``, below ``path``."""
    filesystems, field = hardware.defaulted(domain), path.child("devices", "filesystems")
    found = validate_count(filesystems, MAX_FILESYSTEMS, field)
    for position, filesystem in enumerate(filesystems):
        found += _validate(filesystem, field.index(position))
    return found + validate_unique(filesystems, "name", field) + _validate_claims(domain, field)


def _validate(filesystem: Object, path: Path) -> list[FieldError]:
    name, kind, source = filesystem.get("name") or "", filesystem.get("type"), filesystem.get("source") or {}
    found = [too_long(path.child("name"), MAX_TAG)] if len(name) > MAX_TAG else validate_device_name(name, path.child("name"))
    if kind is None:  # the schema reports a missing or unknown type
        return found
    if kind != hardware.CLAIM and not filesystem["readOnly"]:
        found.append(invalid(path.child("readOnly"), filesystem["readOnly"], f"a file system of type {kind} is always read-only"))
    named, field = str(source.get("name") or ""), path.child("source", "name")
    if not named:
        return [*found, required(field, f"the name of a {kind} in the same namespace")]
    return found + [invalid(field, named, each) for each in names.subdomain_errors(named.lower() if kind == hardware.CLAIM else named)]


def _validate_claims(domain: Object, path: Path) -> list[FieldError]:
    taken = {disks.claim_of(each) for each in disks.defaulted(domain)} | {firmware.state_claim(domain)}
    found = []
    for position, filesystem in enumerate(hardware.defaulted(domain)):
        claim = hardware.claim_of(filesystem)
        if claim and claim in taken:
            found.append(duplicate(path.index(position).child("source", "name"), claim))
        taken.add(claim)
    return found
