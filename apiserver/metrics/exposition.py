"""Write Prometheus' text exposition format 0.0.4."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence


def heading(name: str, kind: str, documentation: str) -> Iterator[str]:
    """Yield the two lines before a metric's series, HELP and TYPE."""
    escaped = documentation.replace("\\", "\\\\").replace("\n", "\\n")
    yield f"# HELP {name} {escaped}"
    yield f"# TYPE {name} {kind}"


def histogram_lines(
    name: str, labels: Sequence[str], values: Sequence[str], bounds: Sequence[float], counts: Sequence[int], total: float
) -> Iterator[str]:
    """Yield one histogram's lines; ``counts``: values per bucket, not cumulative, one more than ``bounds``; ``total``: the values' sum."""
    inner = label_text(labels, values)[1:-1]
    before = f"{name}_bucket{{{inner}," if inner else f"{name}_bucket{{"
    running = 0
    for bound, count in zip((*bounds, math.inf), counts, strict=True):
        running += count
        yield f'{before}le="{number(bound)}"}} {running}'
    braces = f"{{{inner}}}" if inner else ""
    yield f"{name}_sum{braces} {number(total)}"
    yield f"{name}_count{braces} {running}"


def label_text(labels: Sequence[str], values: Sequence[str]) -> str:
    """Return ``{name="value",…}``, empty without labels."""
    if not labels:
        return ""
    return "{" + ",".join(f'{label}="{_escaped(value)}"' for label, value in zip(labels, values, strict=True)) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def number(value: float) -> str:
    """Format a number for Prometheus; integers without a point. Raises ValueError for NaN, OverflowError for -∞."""
    if value == math.inf:
        return "+Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1 << 53 else repr(float(value))
