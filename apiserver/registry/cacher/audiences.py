"""Waiting watches, indexed so that a change only touches those it concerns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from apiserver.registry.cacher.changes import Record
from apiserver.registry.cacher.items import Item


@dataclass(frozen=True, slots=True)
class Trigger:
    """A condition that a predicate implies: ``read`` returns ``value`` for the item's ``field``."""

    field: str
    value: str
    read: Callable[[Item], str]


class Waiting(Protocol):
    """A waiting watch. Changes of ``key``, or below ``prefix``, wake it, unless they exclude its ``trigger``."""

    prefix: str
    key: str
    """Empty: any key below ``prefix``."""
    trigger: Trigger | None


Watch = TypeVar("Watch", bound=Waiting)


class Audience(Generic[Watch]):
    """Watches that the same changes concern."""

    __slots__ = ("watches",)

    def __init__(self) -> None:
        self.watches: dict[Watch, None] = {}


class _Scope(Generic[Watch]):
    """The watches of one key or prefix, without trigger or by field and value."""

    __slots__ = ("by_field", "plain", "size")

    def __init__(self) -> None:
        self.plain: Audience[Watch] = Audience()
        self.by_field: dict[str, tuple[Callable[[Item], str], dict[str, Audience[Watch]]]] = {}
        self.size = 0

    def add(self, watch: Watch) -> None:
        self.size += 1
        trigger = watch.trigger
        if trigger is None:
            audience = self.plain
        else:
            _, by_value = self.by_field.setdefault(trigger.field, (trigger.read, {}))
            audience = by_value.setdefault(trigger.value, Audience())
        audience.watches[watch] = None

    def discard(self, watch: Watch) -> None:
        self.size -= 1
        trigger = watch.trigger
        if trigger is None:
            del self.plain.watches[watch]
            return
        _, by_value = self.by_field[trigger.field]
        del by_value[trigger.value].watches[watch]
        if not by_value[trigger.value].watches:
            del by_value[trigger.value]
        if not by_value:
            del self.by_field[trigger.field]

    def concerned(self, record: Record) -> Iterator[Audience[Watch]]:
        if self.plain.watches:
            yield self.plain
        for read, by_value in self.by_field.values():
            try:
                values = {read(item) for item in (record.old, record.new) if item is not None}
            except Exception:  # noqa: BLE001 - it cannot be read: the predicates of those who ask for it will say so, each to its own watch
                yield from list(by_value.values())
                continue
            for value in values:
                if (audience := by_value.get(value)) is not None:
                    yield audience

    def watches(self) -> Iterator[Watch]:
        yield from self.plain.watches
        for _, by_value in self.by_field.values():
            for audience in by_value.values():
                yield from audience.watches


class Audiences(Generic[Watch]):
    """All waiting watches."""

    def __init__(self) -> None:
        self._of_prefix: dict[str, _Scope[Watch]] = {}
        self._of_key: dict[str, _Scope[Watch]] = {}
        self._lengths: Counter[int] = Counter()  # of the prefixes

    @property
    def is_empty(self) -> bool:
        """True if it has no watch."""
        return not self._of_prefix and not self._of_key

    def enter(self, watch: Watch) -> None:
        """Add a watch, which must not have been added."""
        scopes, name = (self._of_key, watch.key) if watch.key else (self._of_prefix, watch.prefix)
        scope = scopes.get(name)
        if scope is None:
            scope = scopes[name] = _Scope()
            if not watch.key:
                self._lengths[len(name)] += 1
        scope.add(watch)

    def leave(self, watch: Watch) -> None:
        """Remove a watch, which must have been added."""
        scopes, name = (self._of_key, watch.key) if watch.key else (self._of_prefix, watch.prefix)
        scope = scopes[name]
        scope.discard(watch)
        if scope.size:
            return
        del scopes[name]
        if not watch.key:
            self._lengths[len(name)] -= 1
            if not self._lengths[len(name)]:
                del self._lengths[len(name)]

    def concerned(self, records: Sequence[Record]) -> Iterable[tuple[Audience[Watch], list[Record]]]:
        """Yield each audience (watches that the same changes concern) of some of the records, with these records in order."""
        concerning: dict[Audience[Watch], list[Record]] = {}
        for record in records:
            key = record.key
            for length in self._lengths:
                if (scope := self._of_prefix.get(key[:length])) is not None:
                    for audience in scope.concerned(record):
                        concerning.setdefault(audience, []).append(record)
            if (scope := self._of_key.get(key)) is not None:
                for audience in scope.concerned(record):
                    concerning.setdefault(audience, []).append(record)
        return concerning.items()

    def watches(self) -> list[Watch]:
        """Return all waiting watches."""
        return [watch for scopes in (self._of_prefix, self._of_key) for scope in scopes.values() for watch in scope.watches()]
