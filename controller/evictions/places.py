"""Limits on concurrent migrations caused by evictions, and fairness between namespaces. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from apiserver.apis.meta.objects import Object, labels_of, namespace_of
from apiserver.apis.virt.lifecycle import evictions, phases
from controller.reconcilers.migrations import migration_bounds

CLUSTER: Final = ""


@dataclass(frozen=True, slots=True)
class Places:
    """Evictions' concurrent migrations from the node ``where``, or if empty in the cluster, and their limit."""

    where: str
    limit: int
    taken: Counter[str]
    """By namespace."""

    def are_full(self) -> bool:
        """Return whether the limit of migrations in progress is reached."""
        return self.taken.total() >= self.limit

    def are_others(self, namespace: str, waiting: Mapping[str, frozenset[str]]) -> bool:
        """Return whether the next place is for another namespace: this one uses at least half of the limit, and a waiting one less.

        ``waiting``: waiting namespaces by node or cluster.
        """
        half = self.limit // 2
        return self.taken[namespace] >= half and any(self.taken[each] < half for each in waiting.get(self.where, ()))

    def describe(self, namespace: str | None = None) -> str:
        """Return a clause for messages: how many migrations of one namespace, or of all, are in progress."""
        count = self.taken.total() if namespace is None else self.taken[namespace]
        of = "" if namespace is None else f" of namespace {namespace}"
        many, are = ("1 migration", "is") if count == 1 else (f"{count} migrations", "are")
        return f"{many}{of} from node {self.where} {are} in progress" if self.where else f"{many}{of} {are} in progress in the cluster"


def found(migrations: Sequence[Object], node: str, per_node: int, per_cluster: int, now: datetime) -> Iterator[Places]:
    """Yield the Places of the node, then of the cluster: the limit, and evictions' migrations in progress, except overdue and lost ones."""
    unfinished = (each for each in migrations if phases.is_unfinished(each) and migration_bounds.holds_place(each, now))
    ours = [each for each in unfinished if evictions.POD_LABEL in labels_of(each)]
    yield Places(node, per_node, Counter(namespace_of(each) for each in ours if evictions.node_left_by(each) == node))
    yield Places(CLUSTER, per_cluster, Counter(map(namespace_of, ours)))
