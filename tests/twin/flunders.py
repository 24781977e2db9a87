"""``wardle.example.com/v1alpha1`` as the sample-apiserver has it: flunders and fischers, as strategies on our own machinery."""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict

from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.resources import Resource
from apiserver.apis.meta.validation import FieldError
from apiserver.registry.generic.strategy import Strategy

GROUP: Final = "wardle.example.com"
VERSION: Final = "v1alpha1"


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class FlunderSpec(_Strict):
    """What a flunder refers to."""

    reference: str = ""
    referenceType: Literal["Flunder", "Fischer"] | None = None  # noqa: N815 - the API's name


class FlunderStatus(_Strict):
    """Has no fields."""


class Flunder(_Strict):
    """An example type with a spec and a status."""

    spec: FlunderSpec = FlunderSpec()
    status: FlunderStatus = FlunderStatus()


class Fischer(_Strict):
    """Lists the flunders that are not allowed."""

    disallowedFlunders: list[str] | None = None  # noqa: N815 - the API's name


class FlunderStrategy(Strategy):
    """Namespaced, with a status."""

    singular = "flunder"
    model = Flunder

    def __init__(self, group: str = GROUP) -> None:
        self.resource = Resource(group, VERSION, "flunders", "Flunder")

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        obj.setdefault("status", {})
        if spec.get("reference") and not spec.get("referenceType"):
            spec["referenceType"] = "Flunder"

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        return []  # as the sample's


class FischerStrategy(Strategy):
    """Of the cluster, without spec and status."""

    singular = "fischer"
    model = Fischer
    has_status = False

    def __init__(self, group: str = GROUP) -> None:
        self.resource = Resource(group, VERSION, "fischers", "Fischer", namespaced=False)


def strategies(group: str = GROUP) -> tuple[Strategy, ...]:
    """Return what the sample-apiserver serves, under ``group``."""
    kinds: tuple[Any, ...] = (FlunderStrategy, FischerStrategy)
    return tuple(kind(group) for kind in kinds)
