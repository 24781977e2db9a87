from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any, Final

import yaml

GOLDEN: Final = Path(__file__).parents[1] / "unit" / "charts" / "golden.yaml"
"""The chart with its defaults, kept current by a test."""


def objects() -> list[dict[str, Any]]:
    return parsed(GOLDEN.read_text(encoding="utf-8"))


def parsed(text: str) -> list[dict[str, Any]]:
    """Return new objects; YAML is read once, because the chart takes a tenth of a second."""
    found: list[dict[str, Any]] = json.loads(_as_json(text))
    return found


@functools.lru_cache(maxsize=64)
def _as_json(text: str) -> str:
    return json.dumps([each for each in yaml.load_all(text, Loader=yaml.CSafeLoader) if each])
