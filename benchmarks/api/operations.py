"""Operations that are measured, how each is asked, and which ratio is wanted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

BASE: Final = 1_000
MANY: Final = 10_000
ASKED: Final = 64
"""Objects that single reads and writes go over: each name is another SubjectAccessReview, kept for seconds, and what is measured is the
server with its answers in the cache."""


@dataclass(frozen=True)
class Operation:
    """One row of the table."""

    key: str
    verb: str
    """The load generator's."""
    wanted: float
    """Processor time of the twin divided by ours."""
    budget_us: float
    """Of our server; 0: none was set."""
    namespace: str = "bench"
    names: str = "o"
    objects: int = ASKED
    connections: int = 16
    query: str = ""
    rate: float = 0.0
    watchers: int = 0
    cpu: float = 1.0
    """Seconds of processor time that a sample lasts: it is counted in ticks of 10 ms."""
    quick_cpu: float = 1.0
    many: bool = False
    """Measured with 10,000 objects in place."""
    varied: bool = False
    """By many users, each for objects of its own (``varied``), at servers that record every event at once."""

    @property
    def flags(self) -> list[str]:
        """The load generator's flags."""
        flags = [f"-op={self.verb}", f"-names={self.names}", f"-objects={self.objects}", f"-connections={self.connections}"]
        if self.query:
            flags.append(f"-query={self.query}")
        if self.rate:
            flags.append(f"-rate={self.rate}")
        if self.watchers:
            flags.append(f"-watchers={self.watchers}")
        return flags


OPERATIONS: Final = (
    Operation("get", "get", 8, 40),
    Operation("get_rv0", "get", 10, 20, query="resourceVersion=0"),
    Operation("list_1k", "list", 9, 3_300, objects=BASE, connections=2),
    Operation("create", "create", 4.5, 165, namespace="create", names="c"),
    Operation("update", "update", 6, 220),
    Operation("patch", "patch", 6, 260),
    Operation("apply", "apply", 3, 700, namespace="apply", names="a", query="fieldManager=bench-apply"),
    Operation("watch_50", "watch", 2, 0, namespace="watch", connections=4, rate=50, watchers=100, quick_cpu=0.4),
    Operation("watch_saturated", "watch", 4.5, 5, namespace="watch", connections=8, watchers=100),
    Operation("handshake", "handshake", 1, 0, connections=4, query="resourceVersion=0"),
    Operation("list_10k", "list", 12, 22_000, namespace="many", names="m", objects=MANY, connections=2, many=True),
)
_VARIED: Final = Operation("varied", "", 0, 0, namespace="many", names="m", objects=MANY, many=True, varied=True)
VARIED: Final = (
    replace(_VARIED, key="varied_get", verb="get"),
    replace(_VARIED, key="varied_get_rv0", verb="get", query="resourceVersion=0"),
    replace(_VARIED, key="varied_update", verb="update"),
    replace(_VARIED, key="varied_patch", verb="patch"),
    replace(_VARIED, key="varied_watch_50", verb="watch", connections=4, rate=50, watchers=50, quick_cpu=0.4),
)
"""No ratio is wanted of them yet."""
MEMORY: Final = Operation("memory_10k", "", 4.5, 0, many=True)
QUICK: Final = tuple(each.key for each in (*OPERATIONS, MEMORY))
"""Operations of a quick run unless it is told: before the varied ones, tens of thousands of rights have to be known."""
KEYS: Final = tuple(each.key for each in (*OPERATIONS, *VARIED, MEMORY))
# Further operations that have no wanted ratio: creates are taken away again, and that is worth a row.
DELETE: Final = Operation("delete", "delete", 0, 0, namespace="create", names="c", objects=0)
