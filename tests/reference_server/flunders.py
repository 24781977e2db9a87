"""``wardle.example.com`` as in the sample-apiserver, as strategies of our framework."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.resources import Resource
from apiserver.apis.meta.schema import ATOMIC, Kind, Model
from apiserver.apis.meta.validation import FieldError, Path, invalid
from apiserver.registry.generic.strategy import Reading, Spoke, Strategy

GROUP: Final = "wardle.example.com"
ReferenceType = Literal["", "Flunder", "Fischer"]


class FlunderSpec(Model):
    reference: str | None = Field(None, description="A name of another flunder or fischer, depending on the reference type.")
    reference_type: ReferenceType | None = Field(None, description='The reference type, defaults to "Flunder" if reference is set.')


class FlunderSpecV1beta1(Model):
    flunder_reference: str | None = Field(None, description="A name of another flunder, mutually exclusive to the FischerReference.")
    fischer_reference: str | None = Field(None, description="A name of a fischer, mutually exclusive to the FlunderReference.")
    reference_type: ReferenceType | None = Field(None, description="The reference type.")


class FlunderStatus(Model):
    """A flunder's status, without fields."""


class Flunder(Kind):
    spec: FlunderSpec | None = None
    status: FlunderStatus | None = None


class FlunderV1beta1(Kind):
    spec: FlunderSpecV1beta1 | None = None
    status: FlunderStatus | None = None


class Fischer(Kind):
    disallowed_flunders: list[str] | None = Field(None, json_schema_extra=ATOMIC)


class FlunderStrategy(Strategy):
    singular = "flunder"
    model = Flunder
    has_status = False
    """An ordinary field: the sample serves no subresource."""

    def __init__(self, group: str = GROUP) -> None:
        self.resource = Resource(group, "v1alpha1", "flunders", "Flunder")

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        obj.setdefault("status", {})
        if spec.get("reference") and not spec.get("referenceType"):
            spec["referenceType"] = "Flunder"

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj["spec"]
        kind = spec.get("referenceType")
        if not kind or spec.get("reference"):
            return []
        field = Path("spec").child("fischerReference" if kind == "Fischer" else "flunderReference")
        return [invalid(field, "", f"cannot be empty if referenceType is {kind}")]

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        return []


class FlunderV1beta1Strategy(Spoke):
    """The version with two reference fields; errors that only they can have are refused on reading."""

    model = FlunderV1beta1

    def __init__(self, hub: FlunderStrategy) -> None:
        self.resource = Resource(hub.resource.group, "v1beta1", "flunders", "Flunder")
        super().__init__(hub)

    def read(self, obj: Object) -> Reading:
        reading = super().read(obj)
        return reading if reading.errors else Reading(reading.unknown, tuple(_contradictions(obj.get("spec") or {})))

    def default(self, obj: Object) -> None:
        obj.setdefault("spec", {})
        obj.setdefault("status", {})

    def upgrade(self, obj: Object) -> Object:
        spec = obj.get("spec") or {}
        return {**obj, "spec": _without_nothing(reference=_reference(spec), referenceType=spec.get("referenceType"))}

    def downgrade(self, obj: Object) -> Object:
        spec = obj.get("spec") or {}
        kind = spec.get("referenceType")
        name = "fischerReference" if kind == "Fischer" else "flunderReference"
        return {**obj, "spec": _without_nothing(**{name: spec.get("reference"), "referenceType": kind})}


def _reference(spec: Object) -> str | None:
    found: str | None = spec.get("fischerReference") if spec.get("referenceType") == "Fischer" else spec.get("flunderReference")
    return found


def _without_nothing(**fields: str | None) -> dict[str, str]:
    return {name: value for name, value in fields.items() if value}


def _contradictions(spec: Object) -> list[FieldError]:
    flunder, fischer, kind = (spec.get(name) or "" for name in ("flunderReference", "fischerReference", "referenceType"))
    path = Path("spec")
    if flunder and fischer:
        return [invalid(path.child("fischerReference"), fischer, "cannot be set with flunderReference at the same time")]
    if flunder and kind != "Flunder":
        return [invalid(path.child("flunderReference"), flunder, "cannot be set if referenceType is not Flunder")]
    if fischer and kind != "Fischer":
        return [invalid(path.child("fischerReference"), fischer, "cannot be set if referenceType is not Fischer")]
    return []


class FischerStrategy(Strategy):
    """The kind Fischer: cluster-scoped, without spec and status."""

    singular = "fischer"
    model = Fischer
    has_status = False

    def __init__(self, group: str = GROUP) -> None:
        self.resource = Resource(group, "v1alpha1", "fischers", "Fischer", namespaced=False)


def strategies(group: str = GROUP) -> tuple[Strategy, ...]:
    flunders = FlunderStrategy(group)
    return (flunders, FlunderV1beta1Strategy(flunders), FischerStrategy(group))
