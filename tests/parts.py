"""Divides test modules into parts of about the same length, for processes that run at the same time.

Each process of pytest-xdist imports all modules, and sends five messages about each test; a part imports only its own, and sends none.

``pytest --ring check --write-seconds tests`` measures all modules.
"""

from __future__ import annotations

import collections
import json
import resource
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

SECONDS: Final = Path(__file__).with_name("seconds.json")
"""Processor time of modules that take at least ``LEAST`` seconds."""
LEAST: Final = 0.2


def seconds() -> dict[str, float]:
    found: dict[str, float] = json.loads(SECONDS.read_text(encoding="utf-8"))
    return found


def part(number: int, of: int, modules: Iterable[str], known: Mapping[str, float]) -> frozenset[str]:
    """Return the modules of a part, from 1: the longest module first, each goes to the shortest part so far."""
    lengths = [0.0] * of
    found: set[str] = set()
    for module in sorted(modules, key=lambda each: (-known.get(each, 0.0), each)):
        shortest = lengths.index(min(lengths))
        lengths[shortest] += known.get(module, LEAST / 2)
        if shortest == number - 1:
            found.add(module)
    return frozenset(found)


def written(measured: Mapping[str, float], known: Mapping[str, float]) -> str:
    """Return the table with new figures."""
    merged = {module: round(each, 1) for module, each in {**known, **measured}.items() if each >= LEAST}
    return json.dumps(dict(sorted(merged.items())), indent=1) + "\n"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-seconds", action="store_true", help=f"write the modules' processor time to {SECONDS.name}")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--write-seconds"):
        config.pluginmanager.register(Measuring(), "seconds")


class Measuring:
    def __init__(self) -> None:
        self._spent: dict[str, float] = collections.defaultdict(float)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        before = _spent()
        try:
            return (yield)
        finally:
            self._spent[str(item.path.relative_to(SECONDS.parent))] += _spent() - before

    def pytest_sessionfinish(self) -> None:
        known = {module: each for module, each in seconds().items() if (SECONDS.parent / module).exists()}
        SECONDS.write_text(written(self._spent, known), encoding="utf-8")


def _spent() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)
