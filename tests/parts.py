"""Parts of about the same length for processes that run tests at the same time.

Each process of pytest-xdist imports all modules, and sends five messages about each test; a part imports only its own, and sends none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

SECONDS: Final = Path(__file__).with_name("seconds.json")
"""Modules that take at least ``LEAST`` seconds, without waits for their turn; by path from ``tests``."""
LEAST: Final = 0.2


def seconds() -> dict[str, float]:
    found: dict[str, float] = json.loads(SECONDS.read_text(encoding="utf-8"))
    return found


def part(number: int, of: int, modules: Iterable[str], known: Mapping[str, float]) -> frozenset[str]:
    """Return the modules of part ``number`` (1 to ``of``): from the longest module on, each goes to the shortest part so far."""
    lengths = [0.0] * of
    found: set[str] = set()
    for module in sorted(modules, key=lambda each: (-known.get(each, 0.0), each)):
        shortest = lengths.index(min(lengths))
        lengths[shortest] += known.get(module, LEAST / 2)
        if shortest == number - 1:
            found.add(module)
    return frozenset(found)


def written(measured: Mapping[str, float], known: Mapping[str, float]) -> str:
    merged = {module: round(each, 1) for module, each in {**known, **measured}.items() if each >= LEAST}
    return json.dumps(dict(sorted(merged.items())), indent=1) + "\n"
