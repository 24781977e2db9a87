"""``docs/fields.md``: the fields as tables, with their tests."""

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

Every field of `spec`, with the tests that saw it. `make fields` writes this page from the models, which have the full texts of
`kubectl explain`, and from `tests/fields/*.toml`. The last column names:

- tests that saw the field in a guest, at the outer end of a device (a display, a console), or in a running QEMU;
- or golden files with the result, and why no guest shows it: `needs …`, which the test machines lack, or `for …`, which reads the pod;
- or, outside `spec.domain`, tests that saw its effect.

Fields with equal texts share a row. A `…` stands for the fields of Kubernetes' type, which are copied unchanged into the pod.
"""
_COLUMNS: Final = "| field | type | default | meaning | seen by |\n|---|---|---|---|---|\n"
_PLACES: Final = (OUTSIDE, DOMAIN, DEVICES)
_SCALAR: Final = re.compile(r"(?:(?:list|map) of )*(?:boolean|int32|int64|object|quantity|text)")


def text(fields: Sequence[Field], entries: Sequence[Seen]) -> str:
    rows = list(_shown(fields, entries))
    return _HEAD + "".join(_table(place, rows) for place in _PLACES)


def _table(place: str, shown: Iterable[tuple[Field, Seen | None]]) -> str:
    alike: dict[tuple[str, ...], tuple[list[str], list[str]]] = {}
    for field, entry in shown:
        if place == next(each for each in reversed(_PLACES) if field.path.startswith(f"{each}.")):
            why = str(entry.members.get("why", "")) if entry else ""
            paths, tests = alike.setdefault((_type(field), _default(field), field.summary, why), ([], []))
            paths.append(f"`{field.path}`")
            tests.extend(each for each in _tests(field, entry) if each not in tests)
    return f"\n## `{place}`\n\n{_COLUMNS}" + "".join(_row(key, *value) for key, value in alike.items())


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


def _row(texts: Sequence[str], paths: Sequence[str], tests: Sequence[str]) -> str:
    type_, default, summary, why = texts
    seen_by = ("; " if any(": " in each for each in tests) else ", ").join(tests) + f": {why}" * bool(why)
    cells = (", ".join(paths), type_, default, summary, seen_by)
    return f"| {' | '.join(_escaped(each) for each in cells)} |\n"


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|").replace("<", "&lt;")


def _tests(field: Field, entry: Seen | None) -> list[str]:
    if entry is None:
        return ["**no test**"] if field.is_leaf else []
    names = (*entry.named("guest"), *entry.named("golden"), *entry.named("effect"))
    values = {name: ", ".join(f"`{value}`" for value, each in entry.values.items() if each == name) for name in names}
    return [f"{values[each]}: " * bool(values[each]) + f"`{each.removeprefix('tests/')}`" for each in names]
