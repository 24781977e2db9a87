"""``docs/fields.md``: tables of the fields, and the tests of each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.fields.families import Seen, about
from tests.fields.schema import DEVICES, DOMAIN, OUTSIDE, Field

FILE: Final = Path(__file__).parents[2] / "docs/fields.md"
_HEAD: Final = """# Fields of a VirtualMachine

Every field of `spec`. `make fields` writes this page from the models, which have the full texts of `kubectl explain`, and from
`tests/fields/*.toml`. Fields with equal texts share a row. A `…` stands for the fields of Kubernetes' type, which are copied unchanged into
the pod.
"""
_TESTS: Final = """
## Tests

After each field:

- tests that saw the field in a guest, at the outer end of a device (a display, a console), or in a running QEMU;
- or golden files with the result, and why no guest shows it: `needs …`, which the test machines lack, or `for …`, which reads the pod;
- or, outside `spec.domain`, tests that saw its effect.

Fields with the same tests share a line.

"""
_COLUMNS: Final = "| field | type | default | meaning |\n|---|---|---|---|\n"
_MAX_ROW: Final = 199
_MAX_TYPE: Final = 120
"""A longer list of words is below the table."""
_PLACES: Final = (OUTSIDE, DOMAIN, DEVICES)
_SCALAR: Final = re.compile(r"(?:(?:list|map) of )*(?:boolean|int32|int64|object|quantity|text)")


def text(fields: Sequence[Field], entries: Sequence[Seen]) -> str:
    shown = list(_shown(fields, entries))
    tables = "".join(_table(place, [field for field, _ in shown]) for place in _PLACES)
    return _HEAD + tables + _TESTS + _lines(shown)


def _table(place: str, fields: Iterable[Field]) -> str:
    alike: dict[tuple[str, str, str], list[str]] = {}
    below = ""
    for field in fields:
        if place == next(each for each in reversed(_PLACES) if field.path.startswith(f"{each}.")):
            kind = _type(field)
            if len(kind) > _MAX_TYPE:
                below += f"- `{field.path}`: {kind}\n"
                kind = "listed below"
            alike.setdefault((kind, _default(field), field.summary), []).append(f"`{field.path}`")
    rows = "".join(row for texts, paths in alike.items() for row in _rows(texts, paths))
    return f"\n## `{place}`\n\n{_COLUMNS}{rows}" + f"\n{below}" * bool(below)


def _lines(shown: Iterable[tuple[Field, Seen | None]]) -> str:
    alike: dict[str, list[str]] = {}
    for field, entry in shown:
        if seen_by := _seen_by(field, entry):
            alike.setdefault(seen_by, []).append(f"`{field.path}`")
    return "".join(f"- {', '.join(paths)}: {seen_by}\n" for seen_by, paths in alike.items())


def _shown(fields: Iterable[Field], entries: Sequence[Seen]) -> Iterator[tuple[Field, Seen | None]]:
    given = list(fields)
    top = ""
    for each in given:
        if top and each.path.startswith((f"{top}.", f"{top}[")):
            continue
        below = [other for other in given if other.is_leaf and other.path.startswith((f"{each.path}.", f"{each.path}["))]
        of_below = {entry.key: entry for entry in (about(other, entries) for other in below) if entry}
        if each.is_copied and len(of_below) == 1 and all(about(other, entries) for other in below):
            top = each.path
            yield replace(each, path=f"{each.path}…"), next(iter(of_below.values()))
        elif each.is_leaf or each.default not in ("", "required"):
            yield each, about(each, entries)


def _type(field: Field) -> str:
    return field.type if _SCALAR.fullmatch(field.type) else ", ".join(f"`{each}`" for each in field.type.split(" or "))


def _default(field: Field) -> str:
    is_value = field.default in ("true", "false", *field.type.split(" or "))
    return f"`{field.default}`" if is_value else field.default


def _rows(texts: Sequence[str], paths: Iterable[str]) -> Iterator[str]:
    """Yield the row of some fields with equal texts, or several rows if one would be too long."""
    together: list[str] = []
    for path in paths:
        if together and len(_row(texts, [*together, path])) > _MAX_ROW:
            yield _row(texts, together)
            together = []
        together.append(path)
    yield _row(texts, together)


def _row(texts: Sequence[str], paths: Sequence[str]) -> str:
    return f"| {' | '.join(_escaped(each) for each in (', '.join(paths), *texts))} |\n"


def _seen_by(field: Field, entry: Seen | None) -> str:
    tests = _tests(field, entry)
    why = str(entry.members.get("why", "")) if entry else ""
    return ("; " if any(": " in each for each in tests) else ", ").join(tests) + f": {why}" * bool(why)


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|").replace("<", "&lt;")


def _tests(field: Field, entry: Seen | None) -> list[str]:
    if entry is None:
        return ["**no test**"] if field.is_leaf else []
    names = (*entry.named("guest"), *entry.named("golden"), *entry.named("effect"))
    values = {name: ", ".join(f"`{value}`" for value, each in entry.values.items() if each == name) for name in names}
    return [f"{values[each]}: " * bool(values[each]) + f"`{each.removeprefix('tests/')}`" for each in names]
