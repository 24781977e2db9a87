"""Functions, found by name and called by argument types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from apiserver.cel.frame import Frame
from apiserver.cel.values import Value, no_such_overload

Implementation = Callable[..., Value]
"""Called with the frame, for costs, and the arguments."""


class ANY:
    """Any type in a signature."""


class Function:
    """A function's implementations by argument types; a member function's first argument is the target."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.counts: set[int] = set()
        self._signatures: list[tuple[tuple[type, ...], Implementation]] = []
        self._known: dict[tuple[type, ...], Implementation] = {}

    def add(self, signature: tuple[type, ...], implementation: Implementation) -> None:
        """Add the implementation for these argument types."""
        self._signatures.append((signature, implementation))
        self.counts.add(len(signature))

    def resolve(self, kinds: tuple[type, ...]) -> Implementation:
        """Return the implementation for these argument types, or raise CelError."""
        if (known := self._known.get(kinds)) is not None:
            return known
        for signature, implementation in self._signatures:
            if len(signature) == len(kinds) and all(map(_fits, signature, kinds)):
                self._known[kinds] = implementation
                return implementation
        raise no_such_overload()


def _fits(wanted: type, given: type) -> bool:
    return wanted is ANY or wanted is given


class Library:
    """Functions of one subject; the decorators register them."""

    def __init__(self) -> None:
        self.functions: dict[str, Function] = {}
        self.members: dict[str, Function] = {}

    def function(self, name: str, *signature: type) -> Callable[[Implementation], Implementation]:
        """Return a decorator that registers a function, such as ``sets.contains``."""
        return self._into(self.functions, name, signature)

    def member(self, name: str, *signature: type) -> Callable[[Implementation], Implementation]:
        """Return a decorator that registers a member function; the first type is the target's."""
        return self._into(self.members, name, signature)

    @staticmethod
    def _into(table: dict[str, Function], name: str, signature: tuple[type, ...]) -> Callable[[Implementation], Implementation]:
        def register(implementation: Implementation) -> Implementation:
            table.setdefault(name, Function(name)).add(signature, implementation)
            return implementation

        return register

    def include(self, other: Library) -> None:
        """Add another library's functions."""
        for mine, theirs in ((self.functions, other.functions), (self.members, other.members)):
            for name, function in theirs.items():
                for signature, implementation in function._signatures:  # noqa: SLF001 - of the same module
                    mine.setdefault(name, Function(name)).add(signature, implementation)


NOMINAL: Final = 1
"""Cost of a step with fixed work."""

__all__ = ["ANY", "NOMINAL", "Frame", "Function", "Library"]
