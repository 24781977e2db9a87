"""Convert objects to the requested form: whole, Table, or metadata only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, Literal

from apiserver.apis.meta.errors import BadRequest
from apiserver.apis.meta.objects import Object, dig
from apiserver.apis.meta.times import age
from apiserver.endpoints.negotiation import PARTIAL, PARTIAL_LIST, TABLE, Representation
from apiserver.registry.generic.strategy import Strategy

Include = Literal["None", "Metadata", "Object"]

ONE: Final = (TABLE, PARTIAL)
"""For one object."""
MANY: Final = (TABLE, PARTIAL_LIST)
"""For a list."""

_NAME: Final = {
    "name": "Name",
    "type": "string",
    "format": "name",
    "description": "Name must be unique within a namespace. It cannot be changed once the object exists.",
    "priority": 0,
}
_AGE: Final = {
    "name": "Age",
    "type": "string",
    "format": "",
    "description": "Time since the object was created, in the server's clock.",
    "priority": 0,
}


def include_of(value: str | None) -> Include:
    """Parse ``includeObject``: how much of each object a Table's rows carry, by default metadata. Raises BadRequest."""
    match value or "Metadata":
        case "None":
            return "None"
        case "Metadata":
            return "Metadata"
        case "Object":
            return "Object"
        case _:
            why = f"includeObject: Invalid value: \"{str(value)[:64]}\": must be 'Metadata', 'Object', 'None', or empty"
            raise BadRequest(f"Unable to convert to Table as requested: {why}")


class Presenter:
    """Converts one strategy's objects to a representation."""

    def __init__(self, strategy: Strategy, now: Callable[[], datetime]) -> None:
        self._strategy = strategy
        self._now = now

    def one(self, obj: Object, representation: Representation, include: Include = "Metadata", *, columns: bool = True) -> Object:
        """Return an object whole, or as a Table or metadata; ``columns`` as for :meth:`table`."""
        match representation.transform:
            case "Table":
                metadata = {"resourceVersion": dig(obj, "metadata", "resourceVersion") or ""}
                return self.table([obj], metadata, representation.version, include, columns=columns)
            case "PartialObjectMetadata":
                return partial(obj, representation.version)
            case _:
                return obj

    def many(self, objects: Sequence[Object], metadata: Object, representation: Representation, include: Include) -> Object:
        """Return the objects as a list, PartialObjectMetadataList or Table; ``metadata`` is the list's."""
        if representation.transform == TABLE:
            return self.table(objects, metadata, representation.version, include)
        if representation.transform == PARTIAL_LIST:
            items = [partial(each, representation.version) for each in objects]
            return {"kind": PARTIAL_LIST, "apiVersion": f"meta.k8s.io/{representation.version}", "metadata": metadata, "items": items}
        resource = self._strategy.resource
        return {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": metadata, "items": list(objects)}

    def part(self, obj: Object, representation: Representation, include: Include) -> Object:
        """Return an object as one item of :meth:`many`: whole, its metadata, or a Table's row."""
        if representation.transform == TABLE:
            return self._row(obj, self._now(), representation.version, include)
        return partial(obj, representation.version) if representation.transform == PARTIAL_LIST else obj

    def table(
        self, objects: Sequence[Object], metadata: Object, version: str = "v1", include: Include = "Metadata", *, columns: bool = True
    ) -> Object:
        """Return a ``Table`` of objects. Without ``columns``, as after a watch's first event, ``columnDefinitions`` is null.

        ``version`` is that of meta.k8s.io.
        """
        now = self._now()
        document: Object = {"kind": TABLE, "apiVersion": f"meta.k8s.io/{version}", "metadata": metadata}
        document["columnDefinitions"] = self.columns() if columns else None
        document["rows"] = [self._row(each, now, version, include) for each in objects]
        return document

    def columns(self) -> list[Object]:
        """Return ``columnDefinitions``, with Name and Age."""
        between = [
            {"name": each.name, "type": each.type, "format": each.format, "description": each.description, "priority": each.priority}
            for each in self._strategy.columns()
        ]
        return [_NAME, *between, _AGE]

    def _row(self, obj: Object, now: datetime, version: str, include: Include) -> Object:
        cells: list[Any] = [
            obj["metadata"]["name"],
            *self._strategy.cells(obj, now),
            age(obj["metadata"].get("creationTimestamp"), now),
        ]
        if include == "None":
            return {"cells": cells, "object": None}
        return {"cells": cells, "object": obj if include == "Object" else partial(obj, version)}


def partial(obj: Object, version: str) -> Object:
    """Return the object's ``PartialObjectMetadata``."""
    return {"kind": PARTIAL, "apiVersion": f"meta.k8s.io/{version}", "metadata": obj["metadata"]}
