"""A kind unrelated to virtual machines."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from apiserver.apis.meta.errors import BadRequest, Conflict
from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.resources import Resource
from apiserver.apis.meta.validation import FieldError, Path, invalid, type_invalid
from apiserver.registry.generic.scaling import Scaling
from apiserver.registry.generic.strategy import Column, Connect, CreatingVerb, Destination, Read, Reading, Spoke, Strategy, Verb

WIDGETS: Final = Resource("example.test", "v1", "widgets", "Widget")
OLD_WIDGETS: Final = Resource("example.test", "v1beta1", "widgets", "Widget")


class Part(BaseModel):
    name: str


class Spec(BaseModel):
    model_config = ConfigDict(strict=True)

    size: int = 1
    color: Literal["red", "green"] = "red"
    parts: list[Part] = Field(
        default_factory=list,
        json_schema_extra={"x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": "name"},
    )
    slot: str = ""
    replicas: int = 0


class Status(BaseModel):
    phase: str = ""
    replicas: int = 0


class Widget(BaseModel):
    spec: Spec = Spec()
    status: Status = Status()


class OldSpec(BaseModel):
    model_config = ConfigDict(strict=True)

    extent: int = 1
    paint: Literal["red", "green"] = "red"
    parts: list[Part] = Field(default_factory=list, json_schema_extra=Spec.model_fields["parts"].json_schema_extra)
    slot: str = ""
    count: int = 0


class OldWidget(BaseModel):
    spec: OldSpec = OldSpec()
    status: Status = Status()


class Paint(Verb):
    def apply(self, obj: Object, body: Object, now: datetime) -> Object:
        if obj["spec"].get("color") == "green":
            raise Conflict("it is green already")
        obj["spec"]["color"] = body.get("color", "green")
        obj["status"] = {"phase": "Painted"}
        return obj


class Twin(CreatingVerb):
    creates = WIDGETS

    def make(self, obj: Object, body: Object, now: datetime) -> Object:
        metadata = {"generateName": f"{obj['metadata']['name']}-", "namespace": obj["metadata"]["namespace"]}
        return {
            "apiVersion": WIDGETS.api_version,
            "kind": WIDGETS.kind,
            "metadata": metadata,
            "spec": {"size": obj["spec"]["size"], **body},
        }


class Tap(Connect):
    subprotocols = ("plain.example.test",)
    ping_seconds = 5.0

    def __init__(self) -> None:
        self.destination: Destination | None = None
        self.told: tuple[str, ...] = ()
        self.end = ""

    async def locate(self, obj: Object, query: Mapping[str, str]) -> Destination:
        del query
        if self.destination is None:
            raise BadRequest("the widget is off")
        return self.destination

    def warnings(self, obj: Object) -> tuple[str, ...]:
        return self.told

    def over(self, obj: Object) -> str:
        return self.end


class Sheen(BaseModel):
    shine: int = 0


class Shine(Read):
    answers = Resource("example.test", "v1", "sheens", "Sheen")
    model = Sheen

    async def read(self, obj: Object) -> Object:
        if obj["spec"]["size"] == 0:
            raise BadRequest("the widget is too small to shine")
        return {"kind": "Sheen", "apiVersion": "example.test/v1", "metadata": {}, "shine": obj["spec"]["size"]}


class WidgetStrategy(Strategy):
    resource = WIDGETS
    singular = "widget"
    short_names = ("wd",)
    categories = ("toys",)
    model = Widget
    scaling = Scaling(lambda obj: f"widget={obj['metadata']['name']}")

    def __init__(self, tap: Tap | None = None) -> None:
        self.tap = tap or Tap()
        self.verbs = {"paint": Paint(), "twin": Twin()}
        self.connects = {"tap": self.tap}
        self.reads = {"shine": Shine()}

    def read(self, obj: Object) -> Reading:
        return _read(obj, Widget, Spec)

    def hint(self, field: str, value: object = None) -> str:
        return "write spec.size" if field == "spec.theirs" else ""

    def default(self, obj: Object) -> None:
        obj.setdefault("spec", {})
        obj["spec"].setdefault("size", 1)

    def validate(self, obj: Object) -> list[FieldError]:
        size = obj["spec"]["size"]
        return [invalid(Path("spec.size"), size, "must be greater than or equal to 0")] if size < 0 else []

    def selectable_fields(self, obj: Object) -> dict[str, str]:
        return {"spec.color": (obj.get("spec") or {}).get("color") or ""}

    def columns(self) -> tuple[Column, ...]:
        return (Column("Size", type="integer"), Column("Color", priority=1))

    def cells(self, obj: Object, now: datetime) -> list[Any]:
        return [obj["spec"]["size"], obj["spec"].get("color")]

    def locks(self, obj: Object) -> frozenset[str]:
        slot = obj["spec"].get("slot")
        return frozenset({f"slot/{obj['metadata']['namespace']}/{slot}"}) if slot else frozenset()


class OldWidgetStrategy(Spoke):
    resource = OLD_WIDGETS
    model = OldWidget

    def read(self, obj: Object) -> Reading:
        return _read(obj, OldWidget, OldSpec)

    def default(self, obj: Object) -> None:
        obj.setdefault("spec", {}).setdefault("extent", 1)

    def upgrade(self, obj: Object) -> Object:
        return _renamed(obj, {"extent": "size", "paint": "color", "count": "replicas"})

    def downgrade(self, obj: Object) -> Object:
        return _renamed(obj, {"size": "extent", "color": "paint", "replicas": "count"})


def _renamed(obj: Object, names: dict[str, str]) -> Object:
    return {**obj, "spec": {names.get(key, key): value for key, value in obj["spec"].items()}}


def _read(obj: Object, model: type[BaseModel], inner: type[BaseModel]) -> Reading:
    unknown = [key for key in obj if key not in {"apiVersion", "kind", "metadata", "spec", "status"}]
    spec = obj.get("spec")
    if isinstance(spec, dict):
        unknown += [f"spec.{key}" for key in spec if key not in inner.model_fields]
        for key in [key for key in spec if key not in inner.model_fields]:
            del spec[key]
    for key in [key for key in obj if key in unknown]:
        del obj[key]
    try:
        model.model_validate({key: obj[key] for key in ("spec", "status") if obj.get(key) is not None})
    except ValidationError as error:
        wrong = [type_invalid(Path(".".join(str(part) for part in each["loc"])), each["input"], each["msg"]) for each in error.errors()]
        return Reading(tuple(unknown), tuple(wrong))
    return Reading(tuple(unknown))


def widget(name: str = "w1", **spec: Any) -> Object:
    return {"apiVersion": WIDGETS.api_version, "kind": WIDGETS.kind, "metadata": {"name": name}, "spec": spec}
