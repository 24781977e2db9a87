"""Random histories.

A history is plain JSON, so a difference can be printed, shortened and replayed. A step's own seed determines its random choices.
"""

from __future__ import annotations

import dataclasses
import random

KINDS = ("vm", "torture")
MANAGERS = ("a", "b", "kubectl", "kubectl-client-side-apply", "über <m>", "")
MANY = tuple(f"m{number}" for number in range(16))
STEPS = (
    ("update", 22),
    ("apply", 34),
    ("apply-part", 10),
    ("merge-patch", 10),
    ("strategic-patch", 4),
    ("strategic-diff", 6),
    ("json-patch", 6),
    ("status-update", 6),
    ("status-apply", 4),
    ("annotate", 4),
    ("reset", 1),
    ("forge", 4),
    ("forget", 1),
    ("invalid", 4),
    ("again", 4),
    ("remake", 1),
)


@dataclasses.dataclass(frozen=True)
class Step:
    what: str
    by: str
    seed: int
    version: str = ""
    force: bool = False
    older: int = 0


@dataclasses.dataclass(frozen=True)
class History:
    kind: str
    steps: tuple[Step, ...]


def generate(source: random.Random, versions: dict[str, list[str]]) -> History:
    kind = source.choice(KINDS)
    crowded = source.random() < 0.08
    managers = MANY if crowded else MANAGERS
    length = source.randint(12, 24) if crowded else source.randint(2, 9)
    names, weights = zip(*STEPS, strict=True)
    steps = [Step(source.choice(("create", "apply", "forget")), source.choice(managers), source.getrandbits(32), versions[kind][0])]
    for _ in range(length):
        what = "update" if crowded and source.random() < 0.7 else source.choices(names, weights)[0]
        version = source.choice(versions[kind]) if source.random() < 0.3 else versions[kind][0]
        steps.append(
            Step(what, source.choice(managers), source.getrandbits(32), version, source.random() < 0.4, source.choice((0, 0, 1, 5, 3600)))
        )
    return History(kind, tuple(steps))
