"""Measured operations with their wanted ratios."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

BASE: Final = 1_000
MANY: Final = 10_000
ASKED: Final = 64
"""Objects for single reads and writes: few, so their SubjectAccessReviews are cached."""


@dataclass(frozen=True)
class Operation:
    """One row of the benchmark's table: requests of the load generator.

    ``wanted``: minimum ratio of the reference server's processor time to ours, 0 for none. ``cpu``: seconds of processor time per sample;
    the kernel counts ticks of 10 ms.
    """

    key: str
    verb: str
    wanted: float = 0
    namespace: str = "bench"
    names: str = "o"
    objects: int = ASKED
    connections: int = 16
    query: str = ""
    rate: float = 0.0
    watchers: int = 0
    cpu: float = 1.0
    quick_cpu: float = 1.0
    many: bool = False
    """10,000 objects exist during the measurement."""
    varied: bool = False
    """Many users send requests for their own objects (``varied``)."""

    @property
    def flags(self) -> list[str]:
        """Return the load generator's flags for this operation."""
        flags = [f"-op={self.verb}", f"-names={self.names}", f"-objects={self.objects}", f"-connections={self.connections}"]
        if self.query:
            flags.append(f"-query={self.query}")
        if self.rate:
            flags.append(f"-rate={self.rate}")
        if self.watchers:
            flags.append(f"-watchers={self.watchers}")
        return flags


OPERATIONS: Final = (
    Operation("get", "get"),
    Operation("get_rv0", "get", 0, query="resourceVersion=0"),
    Operation("list_1k", "list", 9, objects=BASE, connections=2),
    Operation("create", "create", 3, namespace="create", names="c"),
    Operation("update", "update"),
    Operation("patch", "patch"),
    Operation("apply", "apply", 3, namespace="apply", names="a", query="fieldManager=bench-apply"),
    Operation("watch_50", "watch", 2, namespace="watch", connections=4, rate=50, watchers=100, quick_cpu=0.4),
    Operation("watch_saturated", "watch", 3, namespace="watch", connections=8, watchers=100),
    Operation("handshake", "handshake", connections=4, query="resourceVersion=0"),
    Operation("list_10k", "list", 9, namespace="many", names="m", objects=MANY, connections=2, many=True),
)
_VARIED: Final = Operation("varied", "", namespace="many", names="m", objects=MANY, many=True, varied=True)
VARIED: Final = (
    replace(_VARIED, key="varied_get", verb="get", wanted=2),
    replace(_VARIED, key="varied_get_rv0", verb="get", wanted=2, query="resourceVersion=0"),
    replace(_VARIED, key="varied_update", verb="update", wanted=3),
    replace(_VARIED, key="varied_patch", verb="patch", wanted=3.5),
    replace(_VARIED, key="varied_watch_50", verb="watch", wanted=1.8, connections=4, rate=50, watchers=50, quick_cpu=0.4),
)
"""Rows with realistic requests; repeated rows of a verb have no minimum."""
THROUGH_AGGREGATOR: Final = 2.5
"""The wanted ratio of every row through kube-apiserver."""
MEMORY: Final = Operation("memory_10k", "", 4.5, many=True)
QUICK: Final = tuple(each.key for each in (*OPERATIONS, MEMORY))
"""Without varied operations, which need tens of thousands of reviews first."""
KEYS: Final = tuple(each.key for each in (*OPERATIONS, *VARIED, MEMORY))
DELETE: Final = Operation("delete", "delete", namespace="create", names="c", objects=0)
