"""Functions: found by name, called by the types of their arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from apiserver.cel.frame import Frame
from apiserver.cel.values import Value, no_such_overload

Implementation = Callable[..., Value]
"""Called with the frame, for costs, and the arguments."""


class ANY:
    """Stands in a signature for every type."""


class Function:
    """One function (or member function, whose first argument is the target) with all its signatures."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.counts: set[int] = set()
        self._signatures: list[tuple[tuple[type, ...], Implementation]] = []
        self._known: dict[tuple[type, ...], Implementation] = {}

    def add(self, signature: tuple[type, ...], implementation: Implementation) -> None:
        """Add a signature."""
        self._signatures.append((signature, implementation))
        self.counts.add(len(signature))

    def resolve(self, kinds: tuple[type, ...]) -> Implementation:
        """Return what to call for arguments of these types.

        Raises:
            CelError: no signature fits.
        """
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
        """Register a function; a name with dots, such as ``sets.contains``, is one name."""
        return self._into(self.functions, name, signature)

    def member(self, name: str, *signature: type) -> Callable[[Implementation], Implementation]:
        """Register a member function; the first type is the target's."""
        return self._into(self.members, name, signature)

    @staticmethod
    def _into(table: dict[str, Function], name: str, signature: tuple[type, ...]) -> Callable[[Implementation], Implementation]:
        def register(implementation: Implementation) -> Implementation:
            table.setdefault(name, Function(name)).add(signature, implementation)
            return implementation

        return register

    def include(self, other: Library) -> None:
        """Add everything that another library has."""
        for mine, theirs in ((self.functions, other.functions), (self.members, other.members)):
            for name, function in theirs.items():
                for signature, implementation in function._signatures:  # noqa: SLF001 - of the same module
                    mine.setdefault(name, Function(name)).add(signature, implementation)


NOMINAL: Final = 1
"""The cost of a step of fixed work."""

__all__ = ["ANY", "NOMINAL", "Frame", "Function", "Library"]
