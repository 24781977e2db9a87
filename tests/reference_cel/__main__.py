"""``python -m tests.reference_cel --expressions 20000 --seed 1``: the table, then generated expressions."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator

from tests.reference_cel import table
from tests.reference_cel.compare import compare
from tests.reference_cel.expressions import Generator
from tests.reference_cel.program import Reference

_SHOWN = 25


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--expressions", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--costs", action="store_true", help="show where only costs differ, too")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    shown = 0
    with Reference() as reference:
        for expression in _all(options.expressions, options.seed):
            found = compare(reference, expression, table.VARIABLES)
            counts[found.verdict] += 1
            if (found.verdict == "different" or (options.costs and found.verdict == "cost")) and shown < _SHOWN:
                shown += 1
                print(f"{found.verdict}: {expression}\n  ours: {found.ours}\n  Go:   {found.theirs}")
    print(dict(counts))
    return 1 if counts["different"] else 0


def _all(count: int, seed: int) -> Iterator[str]:
    for section in table.SECTIONS.values():
        yield from section
    for number in range(count):
        yield Generator(seed * 1_000_003 + number).expression()


if __name__ == "__main__":
    raise SystemExit(main())
