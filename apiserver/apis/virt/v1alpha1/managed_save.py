"""``spec.managedSave`` and ``status.managedSave``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from apiserver.apis.meta.schema import Int32, Int64, Model, Time
from apiserver.apis.meta.validation import FieldError, Path, forbidden
from apiserver.apis.virt.v1alpha1.domain.cloud_init import validate_object_name


class NodeDisk(Model):
    """The disk of the node that suspends the guest. It has no fields."""


class ManagedSave(Model):
    """Storage for the guest's memory while the machine is suspended: exactly one of the fields."""

    claim_name: str | None = Field(
        None,
        description="Name of a PersistentVolumeClaim of volume mode Filesystem in the same namespace, with room for the guest's memory. "
        "The machine uses a directory named by its uid, so machines can share a claim, and it may be the claim of a disk. To resume on "
        "another node, the claim must be usable there.",
    )
    node_disk: NodeDisk | None = Field(
        None,
        description="A file of fixed size on the node that suspends the guest, which resumes only there. A running guest needs no restart "
        "for it. The administrator must allow it.",
    )


class ManagedSaveStatus(Model):
    """The image from which the guest resumes at the next start."""

    id: str = Field(description="The id of the operation that saved it.")
    claim_name: str | None = Field(None, description="The PersistentVolumeClaim with the image; none: the disk of node nodeName has it.")
    file: str = Field(description="The image's path in the claim, or in the file system on the node's disk.")
    digest: str = Field(
        description="SHA-256 of the image's header, which contains the domain's XML, and of the list of disks made in the pod. An image "
        "with another one is refused."
    )
    size_bytes: Int64 = Field(description="The image's size.")
    attempt: Int32 | None = Field(None, description="The attempt that it ended.")
    type: Literal["kvm", "qemu"] | None = Field(None, description="kvm: the processor ran the guest. qemu: it was emulated.")
    machine_type: str | None = Field(
        None, description="QEMU's machine type of the guest. A node whose QEMU lacks it cannot resume the guest."
    )
    node_name: str | None = Field(None, description="The node that saved it. A guest with the CPU of its node resumes only there.")
    time: Time | None = Field(None, description="Time at which the guest was saved.")


def validate(spec: Mapping[str, Any], path: Path) -> list[FieldError]:
    """Return errors in ``managedSave``; ``path`` is the spec's."""
    given = spec.get("managedSave")
    if given is None:
        return []
    name, on_node = str(given.get("claimName") or "").lower(), given.get("nodeDisk") is not None
    if on_node:
        return [forbidden(path.child("managedSave", "nodeDisk"), "may not be set together with claimName")] if name else []
    return validate_object_name("PersistentVolumeClaim", name, path.child("managedSave", "claimName"))
