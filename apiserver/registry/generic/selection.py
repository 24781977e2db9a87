"""Select objects of a collection by namespace, labels and fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from apiserver.apis.meta import fields, labels
from apiserver.apis.meta.errors import BadRequest
from apiserver.apis.meta.labels import Operator
from apiserver.registry.cacher.audiences import Trigger
from apiserver.registry.cacher.items import Item
from apiserver.registry.generic.strategy import Strategy

_KNOWN = 4096  # per list
_METADATA = frozenset({"metadata.name", "metadata.namespace"})


@dataclass(frozen=True, slots=True)
class Selection:
    """Terms over labels and fields; all must hold."""

    strategy: Strategy
    labels: labels.Selector = labels.EVERYTHING
    fields: fields.Selector = fields.EVERYTHING

    @property
    def is_everything(self) -> bool:
        """True if the selection has no terms, and so selects every object."""
        return self.labels.is_everything and self.fields.is_everything

    @property
    def name(self) -> str | None:
        """The only name that can match; None: any."""
        return self.fields.exact("metadata.name")

    @property
    def trigger(self) -> Trigger | None:
        """The first label, or field outside ``metadata``, with one required value, for an index; else None."""
        for requirement in self.labels.requirements:
            if requirement.operator in (Operator.EQUALS, Operator.IN) and len(requirement.values) == 1 and requirement.values[0]:
                return Trigger(f"label {requirement.key}", requirement.values[0], _label(requirement.key))
        for term in self.fields.terms:
            if term.equal and term.value and term.field not in _METADATA:
                return Trigger(f"field {term.field}", term.value, _field(self.strategy.hub, term.field))
        return None

    @property
    def is_trigger(self) -> bool:
        """True if the trigger is the only term."""
        return self.number == 1 and self.trigger is not None

    def __call__(self, item: Item) -> bool:
        """Return whether the item is selected."""
        if not self.labels.is_everything and not self.labels.matches(item.labels):
            return False
        return self.fields.is_everything or self.fields.matches(_fields(self.strategy, item))

    @property
    def number(self) -> int:
        """Number of terms."""
        return len(self.labels.requirements) + len(self.fields.terms)

    def among(self, items: Iterable[Item], known: dict[bytes, bool] | None = None) -> list[Item]:
        """Return the selected items in order; ``known`` keeps results by labels, for further calls of this selection."""
        if not self.fields.is_everything:
            return [item for item in items if self(item)]
        known = {} if known is None else known
        found = []
        for item in items:
            raw = item.raw_labels if item.labels_at else b"?"
            selected = known.get(raw)
            if selected is None:
                selected = self.labels.matches(item.labels)
                if len(known) < _KNOWN and item.labels_at:
                    known[raw] = selected
            if selected:
                found.append(item)
        return found


def _label(key: str) -> Callable[[Item], str]:
    return lambda item: item.labels.get(key) or ""


def _field(strategy: Strategy, field: str) -> Callable[[Item], str]:
    return lambda item: _fields(strategy, item).get(field) or ""


def _fields(strategy: Strategy, item: Item) -> Mapping[str, str]:
    if item.fields is None:
        metadata = item.object["metadata"]
        own = {"metadata.name": metadata["name"], "metadata.namespace": metadata.get("namespace", "")}
        item.fields = {**strategy.selectable_fields(item.object), **own}
    return item.fields


def parse(strategy: Strategy, label_selector: str, field_selector: str) -> Selection:
    """Parse a label and a field selector; raises BadRequest, also for unsupported fields."""
    try:
        by_label = labels.parse(label_selector) if label_selector else labels.EVERYTHING
        by_field = fields.parse(field_selector) if field_selector else fields.EVERYTHING
    except ValueError as error:
        raise BadRequest(str(error)[:1024]) from None
    known = _METADATA | strategy.selectable_fields({}).keys() if by_field.terms else _METADATA
    for each in sorted(by_field.field_names - known):
        listed = ", ".join(f'"{name}"' for name in sorted(known))
        raise BadRequest(f'"{each[:128]}" is not a known field selector: only {listed}')
    return Selection(strategy, by_label, by_field)
