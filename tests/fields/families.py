"""The manual part of each family, in ``<family>.toml``: an example of all of its fields, and each field's test.

``[seen.<field>]`` has one of these, each a name or a list of names in pytest's notation, from the repository's root:

- ``guest``: tests that saw the field inside a guest, at a device's outer end (a display, a console), or in a running guest's QEMU, for its
  threads and pages;
- ``golden``: files of ``tests/golden`` with its result; ``why`` gives the reason why no guest shows it;
- ``effect``: tests that saw its effect. Only outside ``spec.domain``.

``[beside]`` has examples of the family's fields that are next to its own field; there ``<field>`` is only the name.

``<field>`` is the path below the family's own field. ``"affinity.*"`` means everything below, only for fields copied unchanged into the
pod.
"""

from __future__ import annotations

import ast
import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from tests.fields.schema import BESIDE, DEVICES, DOMAIN, OUTSIDE, Field

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = Path(__file__).parent
_MEMBERS: Final = frozenset({"guest", "golden", "effect", "values", "why"})
_BY_VALUE: Final = ("disks[].type", "disks[].device", "disks[].target.bus", "interfaces[].type")
"""Each word of these fields below :data:`DEVICES` means another device or access, so each names its test."""
_GOLDEN: Final = "tests/golden/"
_WHERE_GUESTS_ARE: Final = ("tests/host/", "tests/cluster/")


@dataclass(frozen=True)
class Seen:
    family: str
    key: str
    members: Mapping[str, Any]

    @property
    def values(self) -> Mapping[str, str]:
        return dict(self.members.get("values", {}))

    def named(self, member: str) -> Sequence[str]:
        given = self.members.get(member, ())
        of_values = [each for each in self.values.values() if member == ("golden" if each.startswith(_GOLDEN) else "guest")]
        return tuple(dict.fromkeys((*((given,) if isinstance(given, str) else given), *of_values)))

    def is_about(self, field: Field) -> bool:
        if field.family != self.family:
            return False
        whole = self.key.removesuffix(".*")
        return field.key == self.key or (whole != self.key and field.key.startswith((f"{whole}.", f"{whole}[")))


def written() -> dict[str, dict[str, Any]]:
    return {path.stem: tomllib.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.toml"))}


def seen(files: Mapping[str, Mapping[str, Any]]) -> list[Seen]:
    return [Seen(family, key, members) for family, content in files.items() for key, members in content.get("seen", {}).items()]


def example(fields: Iterable[Field]) -> dict[str, Any]:
    files = written()
    whole: dict[str, Any] = {**files[OUTSIDE]["example"], "domain": {"devices": {}}}
    for field in fields:
        parent = whole["domain"] if field.path.rpartition(".")[0] == DOMAIN else whole["domain"]["devices"]
        name = field.path.rpartition(".")[2]
        if not field.key and name != "devices" and field.family in files:
            parent[name] = files[field.family]["example"]
        elif field.path in BESIDE:
            whole["domain"]["devices"][name] = files[field.family]["beside"][name]
    return whole


def faults(fields: Sequence[Field], entries: Sequence[Seen]) -> list[str]:
    told = [f"{each.path} has no entry in tests/fields/{each.family}.toml" for each in fields if each.is_leaf and not about(each, entries)]
    for entry in entries:
        told += [f"tests/fields/{entry.family}.toml: {entry.key} {fault}" for fault in _faults(entry, fields)]
    return told


def about(field: Field, entries: Iterable[Seen]) -> Seen | None:
    return next((each for each in entries if each.is_about(field)), None)


def _faults(entry: Seen, fields: Iterable[Field]) -> Iterator[str]:
    of = [each for each in fields if each.is_leaf and entry.is_about(each)]
    if not of:
        yield "is no field that has a value"
    if entry.key.endswith(".*") and not all(each.is_copied for each in of):
        yield "is not only copied into the pod: each of its fields needs an entry"
    if unknown := sorted(entry.members.keys() - _MEMBERS):
        yield f"has {', '.join(unknown)}, which means nothing"
    for words in (set(each.type.split(" or ")) for each in of if entry.values or each.path.removeprefix(f"{DEVICES}.") in _BY_VALUE):
        yield from (f"does not say what saw {each}" for each in sorted(words - set(entry.values)))
        yield from (f"says what saw {each}, which it cannot be" for each in sorted(set(entry.values) - words))
    if not any(entry.named(each) for each in ("guest", "golden", "effect")):
        yield "names nothing that saw it"
    if entry.named("golden") and not entry.members.get("why"):
        yield "does not say why no guest can see it"
    if entry.named("effect") and entry.family != OUTSIDE:
        yield "is part of the domain: a guest, or a golden pair, has to show it"
    yield from _absent(entry)
    yield from _unshown(entry, [each for each in of if each.is_copied])


def _absent(entry: Seen) -> Iterator[str]:
    yield from (f"names {each}, which is no test" for each in (*entry.named("guest"), *entry.named("effect")) if not _is_test(each))
    yield from (f"names {each}, which has no guest" for each in entry.named("guest") if not each.startswith(_WHERE_GUESTS_ARE))
    yield from (f"names {each}, which is no golden file" for each in entry.named("golden") if not _is_golden(each))


def _unshown(entry: Seen, copied: Sequence[Field]) -> Iterator[str]:
    for name in filter(_is_golden, entry.named("golden") if copied else ()):
        pod = json.loads((ROOT / name).read_text(encoding="utf-8"))
        yield from (f"names {name}, which has no {each.path}" for each in copied if not _has(pod, each.path.replace("[]", "").split(".")))


def _has(value: object, names: Sequence[str]) -> bool:
    if not names:
        return True
    if isinstance(value, list):
        return any(_has(each, names) for each in value)
    return isinstance(value, dict) and names[0] in value and _has(value[names[0]], names[1:])


def _is_golden(name: str) -> bool:
    return name.startswith(_GOLDEN) and (ROOT / name).is_file()


def _is_test(name: str) -> bool:
    file, _, test = name.partition("::")
    return (ROOT / file).is_file() and test.startswith("test_") and test in _functions(ROOT / file)


@lru_cache
def _functions(file: Path) -> frozenset[str]:
    nodes = ast.parse(file.read_text(encoding="utf-8")).body
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
