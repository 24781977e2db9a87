"""Protect managed fields from admission plug-ins that break them.

Source: ``k8s.io/apiserver/pkg/endpoints/handlers/fieldmanager/admission.go``.
"""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.managedfields.entries import Reader
from apiserver.apis.meta.objects import HubObject, Json, Object, dig
from apiserver.registry.generic.admission import Attributes

WARNING: Final = (
    ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating admission controller; "
    "please fix your requests: "
)


def of(obj: Object | None) -> Json:
    """Return an object's managed fields, or None."""
    return dig(obj, "metadata", "managedFields")


def keep(attributes: Attributes, before: Json) -> None:
    """Restore the object's managed fields to ``before``, with a warning, if admission made them unreadable."""
    after = of(attributes.obj)
    if after is before or not after or after == before or attributes.obj is None:
        return
    try:
        Reader({}).read(after)
    except (ValueError, TypeError, AttributeError) as error:
        metadata = {key: value for key, value in attributes.obj["metadata"].items() if key != "managedFields"}
        attributes.obj = HubObject({**attributes.obj, "metadata": metadata | ({"managedFields": before} if before else {})})
        attributes.warn(f"{WARNING}{error}")
