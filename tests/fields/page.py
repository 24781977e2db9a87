"""``docs/fields.md``: the fields as tables, with their tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from tests.fields.families import Seen, about
from tests.fields.schema import OUTSIDE, Field

FILE: Final = Path(__file__).parents[2] / "docs/fields.md"
_HEAD: Final = """# Fields of a VirtualMachine

Every field of `spec`, with the test that saw it. Written by `make fields` from the models, which have the texts that
`kubectl explain` prints in full, and from `tests/fields/*.toml`, which names the tests: do not edit this page.

In the last column is a test that saw the field from inside a guest (or at the outer end of a device that has one: a display, a
console; or in the QEMU that runs a guest: its threads, its pages); or the golden files that have what it becomes, with the
reason why no guest can see it; or, for what is not of `spec.domain`, a test that saw its effect. An object that has fields is
seen by them.
"""
_COLUMNS: Final = "| field | type | default | what it is | seen by |\n|---|---|---|---|---|\n"


def text(fields: Sequence[Field], entries: Sequence[Seen]) -> str:
    """Return the content of the page."""
    families = list(dict.fromkeys([OUTSIDE, *(each.family for each in fields)]))
    return _HEAD + "".join(_table(family, fields, entries) for family in families)


def _table(family: str, fields: Iterable[Field], entries: Sequence[Seen]) -> str:
    rows = [_row(each, about(each, entries)) for each in fields if each.family == family]
    title = "The machine as an object" if family == OUTSIDE else f"`{family}`"
    return f"\n## {title}\n\n{_COLUMNS}" + "\n".join(rows) + "\n"


def _row(field: Field, entry: Seen | None) -> str:
    words = field.type.replace(" or ", ", ")
    cells = (
        f"`{field.path}`",
        words,
        field.default,
        field.summary,
        _seen_by(entry) if entry else "**nobody**" if field.is_leaf else "see its fields",
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
