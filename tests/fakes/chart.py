from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

GOLDEN: Final = Path(__file__).parents[1] / "unit" / "charts" / "golden.yaml"
"""The chart with its defaults, kept current by a test."""


def objects() -> list[dict[str, Any]]:
    return parsed(GOLDEN.read_text(encoding="utf-8"))


def parsed(text: str) -> list[dict[str, Any]]:
    return [each for each in yaml.load_all(text, Loader=yaml.CSafeLoader) if each]
