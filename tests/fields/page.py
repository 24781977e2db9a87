"""``docs/fields.md``: the fields as tables, with their tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.fields.families import Seen, about
from tests.fields.schema import OUTSIDE, Field

FILE: Final = Path(__file__).parents[2] / "docs/fields.md"
_HEAD: Final = """# Fields of a VirtualMachine

Every field of `spec`, with the test that saw it. `make fields` writes this page from the models, which have the full texts of
`kubectl explain`, and from `tests/fields/*.toml`, which names the tests. Do not edit it.

The last column names one of these:

- a test that saw the field in a guest, at the outer end of a device (a display, a console), or in a running QEMU (threads, memory pages);
- golden files with the field's result, and the reason why no guest shows it;
- outside `spec.domain`, a test that saw the field's effect.

The rows of an object's fields cover it; it has a row only for a default of its own. A `…` in a path stands for the fields of Kubernetes'
type, which are copied unchanged into the pod. `needs KVM`: the test machines emulate processors.
"""
_COLUMNS: Final = "| field | type | default | what it is | seen by |\n|---|---|---|---|---|\n"


def text(fields: Sequence[Field], entries: Sequence[Seen]) -> str:
    families = list(dict.fromkeys([OUTSIDE, *(each.family for each in fields)]))
    rows = list(_shown(fields, entries))
    return _HEAD + "".join(_table(family, rows) for family in families)


def _table(family: str, shown: Iterable[tuple[Field, Seen | None]]) -> str:
    rows = [_row(each, entry) for each, entry in shown if each.family == family]
    title = "The machine as an object" if family == OUTSIDE else f"`{family}`"
    return f"\n## {title}\n\n{_COLUMNS}" + "\n".join(rows) + "\n"


def _shown(fields: Iterable[Field], entries: Sequence[Seen]) -> Iterator[tuple[Field, Seen | None]]:
    """Yield the page's rows: a field and the test that saw it, or None.

    A type that is copied into the pod is one row (path ends in ``…``) if one test covers all its fields.
    """
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


def _row(field: Field, entry: Seen | None) -> str:
    words = field.type.replace(" or ", ", ")
    cells = (
        f"`{field.path}`",
        words,
        field.default,
        field.summary,
        _seen_by(entry) if entry else "**no test**" if field.is_leaf else "",
    )
    return f"| {' | '.join(_escaped(each) for each in cells)} |"


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|").replace("<", "&lt;")


def _seen_by(entry: Seen) -> str:
    names = (*entry.named("guest"), *entry.named("golden"), *entry.named("effect"))
    words = {name: ", ".join(word for word, each in entry.values.items() if each == name) for name in names}
    told = [f"{words[each]}: " * bool(words[each]) + f"`{each.removeprefix('tests/')}`" for each in names]
    listed = ("; " if entry.values else ", ").join(told)
    why = entry.members.get("why", "")
    return f"{listed}: {why}" if why else listed
