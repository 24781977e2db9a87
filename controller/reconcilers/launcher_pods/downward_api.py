"""Mounts of disks of type DownwardAPI.

The kubelet has no fields of the machine. So virt-controller writes them into annotations of the pod, which the kubelet mounts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from apiserver.apis.meta.objects import Object, dig
from apiserver.apis.virt.hardware import cloud_init, disks
from apiserver.apis.virt.hardware.given import Domain
from apiserver.apis.virt.places import names
from apiserver.apis.virt.spec import downward_api
from apiserver.apis.virt.spec.described import domain_of

ANNOTATION: Final = "kubevirt.io/downward-api-"


def notes(vm: Object) -> dict[str, str]:
    """Return the pod's annotations: the machine's fields that its DownwardAPI disks request."""
    return {name: downward_api.value(vm, field) for field, name in _names(domain_of(vm)).items()}


def annotations_read(vm: Object) -> dict[str, str]:
    """Return the machine's annotations that its DownwardAPI disks request; an informer must keep them. ``spec.domain`` must be valid."""
    return downward_api.annotations_read(vm, _names(domain_of(vm)))


def source(disk: Object, domain: Object) -> Object:
    """Return the source of a projected volume with the files of a DownwardAPI disk."""
    known = _names(domain)
    return {"downwardAPI": {"items": [_item(each, known) for each in dig(disk, "source", "items") or ()]}}


def _item(item: Object, known: Mapping[str, str]) -> Object:
    path = {"path": str(item.get("path") or "")}
    if (field := dig(item, "fieldRef", "fieldPath")) is not None:
        return {**path, "fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{known[str(field)]}']"}}
    asked = dig(item, "resourceFieldRef") or {}
    divisor = asked.get("divisor")
    reference = {"containerName": names.CONTAINER, "resource": str(asked.get("resource") or "")}
    return {**path, "resourceFieldRef": {**reference, "divisor": "1" if divisor is None else str(divisor)}}


def _names(domain: Domain) -> dict[str, str]:
    given = [each for each in disks.defaulted(domain) if each.get("type") == cloud_init.DOWNWARD_API]
    asked = [each for disk in given for each in dig(disk, "source", "items") or ()]
    fields = dict.fromkeys(str(field) for each in asked if (field := dig(each, "fieldRef", "fieldPath")) is not None)
    return {field: f"{ANNOTATION}{number}" for number, field in enumerate(fields)}
