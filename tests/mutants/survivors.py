from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.mutants.mutant import Key

PATH: Final = Path(__file__).with_name("survivors.toml")
_FIELDS: Final = tuple(each.name for each in dataclasses.fields(Key))


@dataclass(frozen=True)
class Verdict:
    unjudged: tuple[Key, ...]
    noticed: tuple[Key, ...]
    gone: tuple[Key, ...]
    """Entries for changes that the module no longer has."""

    @property
    def passed(self) -> bool:
        return not (self.unjudged or self.noticed or self.gone)


def read(text: str) -> dict[Key, str]:
    found = entries(text)
    for key, reason in found.items():
        if not reason:
            raise ValueError(f"{key}: the reason is empty")
    return found


def entries(text: str) -> dict[Key, str]:
    found: dict[Key, str] = {}
    for entry in tomllib.loads(text).get("survivor", ()):
        about = f"survivor {json.dumps(entry, ensure_ascii=False)}"
        if unknown := set(entry) - {*_FIELDS, "reason"}:
            raise ValueError(f"{about}: unknown {', '.join(sorted(unknown))}")
        if missing := {*_FIELDS, "reason"} - {"nth"} - set(entry):
            raise ValueError(f"{about}: without {', '.join(sorted(missing))}")
        reason = str(entry.pop("reason")).strip()
        key = Key(**entry)
        if key in found:
            raise ValueError(f"{about}: stands twice")
        found[key] = reason
    return found


def judge(mutants: Iterable[Key], survived: Iterable[Key], reasons: Mapping[Key, str], modules: Iterable[str]) -> Verdict:
    alive, every, run = set(survived), set(mutants), set(modules)
    entries = {key for key in reasons if key.module in run}
    return Verdict(
        unjudged=tuple(sorted(alive - entries)),
        noticed=tuple(sorted((entries & every) - alive)),
        gone=tuple(sorted(entries - every)),
    )


def written(keys: Iterable[Key]) -> str:
    return "\n".join(_entry(key) for key in sorted(keys))


def _entry(key: Key) -> str:
    # A JSON string is also a TOML string.
    fields = {name: value for name, value in dataclasses.asdict(key).items() if (name, value) != ("nth", 1)}
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in fields.items()]
    return "\n".join(["[[survivor]]", *lines, 'reason = ""', ""])
