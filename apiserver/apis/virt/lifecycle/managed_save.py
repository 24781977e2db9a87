"""The image of a suspended guest's memory: ``spec.managedSave`` names its claim, ``status.managedSave`` the image.

The claim has ``<machine's uid>/<operation's id>``. A start resumes only from the status's image.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from apiserver.apis.meta.objects import Object, dig, uid_of
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import operations, power
from apiserver.apis.virt.places.saved_image import Image, file_of, read

FIELD: Final = "managedSave"


def claim_of(spec: Mapping[str, Any]) -> str:
    """Return the name of the claim for images in lower case; empty: none."""
    return str(dig(spec, FIELD, "claimName") or "").lower()


def of(vm: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return ``status.managedSave``, the image that the next start resumes from, or None."""
    found: Mapping[str, Any] | None = dig_vm(vm, "status", FIELD)
    return found


def image_of(vm: Mapping[str, Any]) -> Image | None:
    """Return ``status.managedSave`` as an ``Image``, or None."""
    found = of(vm)
    return None if found is None else Image(str(found["id"]), str(found["digest"]).removeprefix("sha256:"), int(found["sizeBytes"]))


def suspending(vm: Mapping[str, Any]) -> operations.Operation | None:
    """Return the machine's unfinished operation ``Suspend``, or None."""
    return next((each for each in operations.unfinished(vm) if each.get("action") == operations.SUSPEND), None)


def saved(vm: Mapping[str, Any], claim: str, message: str, moment: str) -> Object | None:
    """Return the new ``status.managedSave`` after the attempt's end; None without the image of a ``Suspend``.

    ``vm`` is as before that end; the pod mounted ``claim``; virt-launcher wrote ``message``.
    """
    image, operation = read(message), suspending(vm)
    if image is None or operation is None or image.id != operation.get("id") or not claim:
        return None
    domain, node = dig_vm(vm, "status", "domain", "type"), dig_vm(vm, "status", "nodeName")
    return {
        "id": image.id,
        "claimName": claim,
        "file": file_of(uid_of(vm), image.id),
        "digest": f"sha256:{image.digest}",
        "sizeBytes": image.size_bytes,
        "attempt": power.current_attempt(vm),
        **({"type": domain} if domain else {}),
        **({"machineType": image.machine} if image.machine else {}),
        **({"nodeName": node} if node else {}),
        "time": moment,
    }
