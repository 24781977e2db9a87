"""Placeholders in a set's template: ``$(vm.name)``, and ``$(vm.suffix)`` or ``$(vm.ordinal)``.

Other texts in ``$(…)``, such as a shell's in cloud-init's data, stay. As in containers' environment, ``$$(vm.name)`` becomes
``$(vm.name)``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from apiserver.apis.meta.validation import FieldError, Path, invalid

_PLACEHOLDER: Final = re.compile(r"(\$?)\$\(vm\.([^()]*)\)")


def expanded(value: Any, values: Mapping[str, str]) -> Any:  # noqa: ANN401  JSON
    """Return a copy of JSON data with ``values`` for placeholders ``$(vm.NAME)`` in strings, not keys; unknown ones stay.

    ``$$(vm.NAME)`` becomes ``$(vm.NAME)``.
    """

    def replaced(found: re.Match[str]) -> str:
        return found[0][1:] if found[1] else values.get(found[2], found[0])

    def of(each: Any) -> Any:  # noqa: ANN401  JSON
        match each:
            case str():
                return _PLACEHOLDER.sub(replaced, each)
            case dict():
                return {key: of(inner) for key, inner in each.items()}
            case list():
                return [of(inner) for inner in each]
            case _:
                return each

    return of(value)


def validate(value: Any, path: Path, names: Sequence[str]) -> Iterator[FieldError]:  # noqa: ANN401  JSON
    """Yield an error for each placeholder ``$(vm.NAME)``, in any text of ``value``, with a NAME that is not in ``names``."""
    match value:
        case str():
            for escaped, name in _PLACEHOLDER.findall(value):
                if not escaped and name not in names:
                    known = " and ".join(f"$(vm.{each})" for each in names)
                    yield invalid(path, f"$(vm.{name})", f"unknown placeholder; {known} exist, and $$(vm.{name}) stands for the text")
        case dict():
            for key, each in value.items():
                yield from validate(each, path.child(key), names)
        case list():
            for position, each in enumerate(value):
                yield from validate(each, path.index(position), names)
        case _:
            return
