"""Items of a disk of type DownwardAPI."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal

from pydantic import Field

from apiserver.apis.meta import names
from apiserver.apis.meta.schema import Model, Quantity
from apiserver.apis.meta.validation import FieldError, Path, duplicate, forbidden, invalid, not_supported, required, too_long
from apiserver.apis.virt.hardware import cloud_init
from apiserver.apis.virt.spec import downward_api
from apiserver.apis.virt.v1alpha1.domain.rules import Object, validate_count

_FILE: Final = re.compile(r"[A-Za-z0-9_.-]+")
_BYTES: Final = ("1", *(f"1{unit}{binary}" for binary in ("", "i") for unit in ("K" if binary else "k", *"MGTPE")))
_DIVISORS: Final = {"cpu": ("1", "1m")}
"""Units that Kubernetes accepts for amounts other than bytes."""


class FieldReference(Model):
    """A field of the machine."""

    field_path: str = Field(
        description="metadata.name, .namespace, .uid, .labels, .annotations, or one label or annotation: metadata.labels['key']."
    )


class ResourceReference(Model):
    """A resource of the machine's container."""

    resource: Literal[
        "limits.cpu",
        "limits.memory",
        "limits.ephemeral-storage",
        "requests.cpu",
        "requests.memory",
        "requests.ephemeral-storage",
    ] = Field(description="The resource's name. Without a limit, the value is the node's amount.")
    divisor: Quantity | None = Field(None, description="Unit of the value, which is rounded up. Default 1.")


class DownwardItem(Model):
    """A file of the disk, from a field or a resource."""

    path: str = Field(description="The file's name.")
    field_ref: FieldReference | None = Field(None, description="The source field. Exactly one of fieldRef and resourceFieldRef.")
    resource_field_ref: ResourceReference | None = Field(None, description="The source resource.")


def validate_items(items: Sequence[Object] | None, path: Path) -> list[FieldError]:
    """Return errors in the items of a DownwardAPI disk."""
    if not items:
        return [required(path, "the files of the disk")]
    found = validate_count(items, downward_api.MAX_ITEMS, path)
    seen: set[str] = set()
    for position, item in enumerate(items):
        found += _validate_item(item, path.index(position))
        if item["path"] in seen:
            found.append(duplicate(path.index(position).child("path"), item["path"]))
        seen.add(item["path"])
    return found


def _validate_item(item: Object, path: Path) -> list[FieldError]:
    found = _validate_file(item["path"], path.child("path"))
    field, resource = item.get("fieldRef"), item.get("resourceFieldRef")
    if field is not None and resource is not None:
        return [*found, forbidden(path.child("resourceFieldRef"), "may not be set together with fieldRef")]
    if field is not None:
        return found + _validate_field(field["fieldPath"], path.child("fieldRef", "fieldPath"))
    if resource is not None:
        return found + _validate_divisor(resource, path.child("resourceFieldRef", "divisor"))
    return [*found, required(path.child("fieldRef"), "or resourceFieldRef")]


def _validate_file(name: str, path: Path) -> list[FieldError]:
    if len(name) > cloud_init.MAX_FILE_NAME:
        return [too_long(path, cloud_init.MAX_FILE_NAME)]
    if not _FILE.fullmatch(name) or name == "." or name.startswith(".."):
        return [invalid(path, name, "must consist of alphanumeric characters, '-', '_' or '.', and not begin with '..'")]
    return []


def _validate_field(field: str, path: Path) -> list[FieldError]:
    if field in downward_api.FIELDS:
        return []
    key = downward_api.key_of(field)
    if key is None:
        return [not_supported(path, field, (*downward_api.FIELDS, "metadata.labels['<key>']", "metadata.annotations['<key>']"))]
    return [invalid(path, field, each) for each in names.qualified_name_errors(key)]


def _validate_divisor(reference: Object, path: Path) -> list[FieldError]:
    divisor = reference.get("divisor")
    allowed = _DIVISORS.get(reference["resource"].partition(".")[2], _BYTES)
    return [] if divisor is None or str(divisor) in allowed else [not_supported(path, str(divisor), allowed)]
