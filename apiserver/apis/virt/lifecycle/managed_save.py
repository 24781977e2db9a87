"""The image of a suspended guest's memory: ``spec.managedSave`` names its storage, ``status.managedSave`` the image.

The storage has ``<machine's uid>/<operation's id>``. A start resumes only from the status's image.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from apiserver.apis.meta.objects import Object, dig, uid_of
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import operations, power
from apiserver.apis.virt.places.saved_image import Image, file_of, read

FIELD: Final = "managedSave"
NODE_DISK: Final = "nodeDisk"
"""Parameter of ``Suspend``: the image goes to the node's disk, whatever the spec becomes meanwhile."""


def claim_of(spec: Mapping[str, Any]) -> str:
    """Return the name of the claim for memory images, in lower case; empty: none."""
    return str(dig(spec, FIELD, "claimName") or "").lower()


def wants_node_disk(spec: Mapping[str, Any]) -> bool:
    """Return whether this spec saves images to the disk of the guest's node."""
    return dig(spec, FIELD, NODE_DISK) is not None


def to_node_disk(operation: operations.Operation) -> bool:
    """Return whether this ``Suspend`` saves to the node's disk."""
    return bool((operation.get("parameters") or {}).get(NODE_DISK))


def node_with(vm: Mapping[str, Any]) -> str:
    """Return the node with the suspended guest's image on its disk; empty: the image is in a claim, or there is none."""
    image = of(vm) or {}
    return "" if not image or image.get("claimName") else str(image.get("nodeName") or "")


def needs(vm: Mapping[str, Any], image_id: str) -> bool:
    """Return whether the machine resumes from this image, or is saving it."""
    saving = suspending(vm)
    return image_id in ((of(vm) or {}).get("id"), None if saving is None else saving.get("id"))


def of(vm: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return ``status.managedSave``, the image that the next start resumes from, or None."""
    found: Mapping[str, Any] | None = dig_vm(vm, "status", FIELD)
    return found


def image_of(vm: Mapping[str, Any]) -> Image | None:
    """Return ``status.managedSave`` as an ``Image``, or None."""
    found = of(vm)
    return None if found is None else Image(str(found["id"]), str(found["digest"]).removeprefix("sha256:"), int(found["sizeBytes"]))


def in_words(image: Mapping[str, Any], name: str) -> str:
    """Return for users where a suspended machine's memory is, given ``status.managedSave``, and how the machine continues."""
    claim, node = image.get("claimName"), image.get("nodeName")
    place = f"in PersistentVolumeClaim {claim}" if claim else f"on the disk of node {node}, where alone it can resume"
    return f"the guest's memory is saved {place} ({int(image['sizeBytes']) >> 20} MiB); to continue it: kubectl virt resume {name}"


def suspending(vm: Mapping[str, Any]) -> operations.Operation | None:
    """Return the machine's unfinished operation ``Suspend``, or None."""
    return next((each for each in operations.unfinished(vm) if each.get("action") == operations.SUSPEND), None)


def saved(vm: Mapping[str, Any], claim: str, message: str, moment: str) -> Object | None:
    """Return the new ``status.managedSave`` after the attempt's end; None without the image of a ``Suspend``.

    ``vm`` is as before that end; the pod mounted ``claim``, if any; virt-launcher wrote ``message``.
    """
    image, operation = read(message), suspending(vm)
    if image is None or operation is None or image.id != operation.get("id") or not (claim or to_node_disk(operation)):
        return None
    domain, node = dig_vm(vm, "status", "domain", "type"), dig_vm(vm, "status", "nodeName")
    return {
        "id": image.id,
        **({} if to_node_disk(operation) else {"claimName": claim}),
        "file": file_of(uid_of(vm), image.id),
        "digest": f"sha256:{image.digest}",
        "sizeBytes": image.size_bytes,
        "attempt": power.current_attempt(vm),
        **({"type": domain} if domain else {}),
        **({"machineType": image.machine} if image.machine else {}),
        **({"nodeName": node} if node else {}),
        "time": moment,
    }
