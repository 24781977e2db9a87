"""``volumeClaimTemplates`` of a VirtualMachineReplicaSet and their retention policy, as of a StatefulSet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from pydantic import Field

from apiserver.apis.meta import objectmeta, quantity
from apiserver.apis.meta.schema import ATOMIC, ATOMIC_MAP, Model, Quantity, Time
from apiserver.apis.meta.validation import FieldError, Path, duplicate, invalid, required
from apiserver.apis.virt.lifecycle import ordinals
from apiserver.apis.virt.v1alpha1.domain.rules import validate_device_name

Object = Mapping[str, Any]
AccessMode = Literal["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"]
Retention = Literal["Retain", "Delete"]

TEMPLATES: Final = Path("spec.volumeClaimTemplates")
POLICY: Final = Path("spec.persistentVolumeClaimRetentionPolicy")


class ClaimMetadata(Model):
    """Metadata of the claims; their names begin with ``name``."""

    name: str = Field(description="The first part of the claims' names: the claim of machine db-0 is NAME-db-0.")
    labels: dict[str, str] | None = Field(None, description="Labels of each claim.")
    annotations: dict[str, str] | None = Field(None, description="Annotations of each claim.")
    creation_timestamp: Time | None = Field(None, description="Ignored. Programs write it as null.")


class ClaimResources(Model):
    """The size of the claims, as ``requests.storage``."""

    requests: dict[str, Quantity] = Field(description="The size, as storage.")


class ClaimSource(Model):
    """The object with the first content of the claims."""

    api_group: str | None = Field(None, description="Its API group. Default: that of PersistentVolumeClaim.")
    kind: str = Field(description="Its kind, such as VolumeSnapshot.")
    name: str = Field(description="Its name, in the set's namespace.")


class ClaimSpec(Model):
    """The spec of the claims, as of a PersistentVolumeClaim."""

    access_modes: list[AccessMode] = Field(description="Access modes, as of a PersistentVolumeClaim.", json_schema_extra=ATOMIC)
    resources: ClaimResources = Field(description="The size.")
    storage_class_name: str | None = Field(None, description="StorageClass. Default: the cluster's default one.")
    volume_mode: Literal["Filesystem", "Block"] | None = Field(None, description="Filesystem or Block. Default Filesystem.")
    data_source: ClaimSource | None = Field(
        None, description="A snapshot or claim that each claim is copied from. Default: empty claims.", json_schema_extra=ATOMIC_MAP
    )


class VolumeClaimTemplate(Model):
    """A claim that the set creates for each machine before the machine."""

    metadata: ClaimMetadata = Field(description="Name, labels and annotations of the claims.")
    spec: ClaimSpec = Field(description="The spec of the claims.")


class ClaimRetentionPolicy(Model):
    """The rules for deleting the claims that the set created."""

    when_deleted: Retention | None = Field(
        None, description="On deletion of the set: Retain keeps the claims, Delete deletes them. Default Retain. Immutable."
    )
    when_scaled: Retention | None = Field(
        None, description="On deletion of a machine, because the set became smaller: Retain or Delete, as above. Default Retain."
    )


def validate(spec: Object) -> Iterator[FieldError]:
    """Yield the errors in a set's claim templates and retention policy."""
    templates = spec.get("volumeClaimTemplates") or ()
    for path, given in ((TEMPLATES, templates), (POLICY, spec.get("persistentVolumeClaimRetentionPolicy"))):
        if given and spec.get("ordinals") is None:
            yield invalid(path, given, "requires spec.ordinals, because claims outlive machines with random names")
    seen: set[str] = set()
    for position, each in enumerate(templates):
        path = TEMPLATES.index(position)
        given, name = each["metadata"], each["metadata"]["name"]
        yield from validate_device_name(name, path.child("metadata", "name"))
        if name in seen:
            yield duplicate(path.child("metadata", "name"), name)
        seen.add(name)
        for error in objectmeta.validate_given({key: given[key] for key in ("labels", "annotations") if given.get(key)}):
            yield FieldError(str(path.child(error.path)), error.reason, error.value, error.detail)
        yield from _validate_spec(each["spec"], path.child("spec"))


def _validate_spec(spec: Object, path: Path) -> Iterator[FieldError]:
    if not spec["accessModes"]:
        yield required(path.child("accessModes"), "at least 1 access mode is required")
    size = spec["resources"]["requests"].get("storage")
    if size is None:
        yield required(path.child("resources", "requests", "storage"))
    elif quantity.parse(size) <= quantity.parse("0"):
        yield invalid(path.child("resources", "requests", "storage"), size, "must be greater than zero")


def validate_update(spec: Object, old: Object) -> Iterator[FieldError]:
    """Yield the errors in a set's updated claim templates and retention policy."""
    if spec.get("volumeClaimTemplates") != old.get("volumeClaimTemplates"):
        yield invalid(TEMPLATES, spec.get("volumeClaimTemplates"), "field is immutable: the claims of machines keep their spec")
    when = ordinals.retention({"spec": spec}, ordinals.WHEN_DELETED)
    if when != ordinals.retention({"spec": old}, ordinals.WHEN_DELETED):
        yield invalid(POLICY.child(ordinals.WHEN_DELETED), when, "field is immutable: each claim gets the set as owner when it is created")
    yield from validate({**spec, "volumeClaimTemplates": None})
