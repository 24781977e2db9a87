"""``python -m tests.reference_library --sequences 50000 --seed 1``: run histories until one differs."""

from __future__ import annotations

import argparse
import random
import sys
import time

from tests.reference_library.compare import Difference
from tests.reference_library.histories import History, generate
from tests.reference_library.program import Reference
from tests.reference_library.steps import Comparison


def run(count: int, seed: int, *, first: int = 0, progress: bool = False) -> None:
    with Reference() as reference:
        comparison = Comparison(reference)
        versions = comparison.versions()
        began = time.monotonic()
        for number in range(first, first + count):
            history = generate(random.Random(f"{seed}-{number}"), versions)
            try:
                comparison.run(history)
            except Difference as difference:
                raise Difference(f"sequence {number} of seed {seed}:\n{_shortened(comparison, history, difference)}") from None
            if progress and (number + 1) % 1000 == 0:
                print(f"{number + 1} sequences without a difference, {time.monotonic() - began:.0f} s", flush=True)


def _shortened(comparison: Comparison, history: History, difference: Difference) -> Difference:
    shorter = True
    while shorter:
        shorter = False
        for position in range(len(history.steps)):
            tried = History(history.kind, history.steps[:position] + history.steps[position + 1 :])
            try:
                comparison.run(tried)
            except Difference as found:
                history, difference, shorter = tried, found, True
                break
    steps = "\n".join(f"  {each}" for each in history.steps)
    return Difference(f"{history.kind}:\n{steps}\n{difference}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.reference_library", description="Compare our field managers with Go's.")
    parser.add_argument("--sequences", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    try:
        run(given.sequences, given.seed, progress=True)
    except Difference as difference:
        print(difference, file=sys.stderr)
        return 1
    print(f"{given.sequences} sequences, no difference")
    return 0


if __name__ == "__main__":
    sys.exit(main())
