from __future__ import annotations

import collections
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Final

from tests.cluster import turns

_CLUSTER: Final = "tests/cluster/"
_ALONE: Final = "the cluster alone"
_HOST: Final = "tests/host/"
_LAUNCHER: Final = "tests/host/launcher/"
_COMPONENT: Final = "tests/component/"


def group(nodeid: str) -> str:
    module = nodeid.partition("::")[0]
    if module.startswith(_HOST):
        return _LAUNCHER if module.startswith(_LAUNCHER) else _HOST
    is_alone = module.startswith(_CLUSTER) and PurePosixPath(module).stem in turns.ALONE
    return _ALONE if is_alone else module


def rank(known: Mapping[str, float]) -> Callable[[str], tuple[int, float]]:
    lengths: dict[str, float] = collections.defaultdict(float)
    for module, seconds in known.items():
        lengths[group(f"tests/{module}")] += seconds
    return lambda nodeid: (_turn(group(nodeid)), -lengths.get(group(nodeid), 0.0))


def _turn(group: str) -> int:
    if group == _ALONE:
        return 1
    if group.startswith(_CLUSTER):
        return 0
    return 3 if group.startswith(_COMPONENT) else 2
