"""Finds non-operational nodes (``docs/decisions/life-cycle.md``).

A machine is evidence against a node only if its start failed there and its guest then ran on another, with the same spec. A successful
start clears the node, and so do an administrator's annotation and a new Node. After a pause the node is on trial: one start at a time may
go there. A failed one doubles the pause.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from apiserver.apis.meta import times
from apiserver.apis.meta.objects import Object, annotations_of, dig, key_of
from apiserver.apis.virt.lifecycle import power
from apiserver.apis.virt.places import names

REPAIRED_ANNOTATION: Final = f"{names.GROUP}/repaired-at"
"""On a Node: failed starts before this time do not count, unless it is in the future."""
MACHINES: Final = 3
"""Least number that failed to start on a node within :data:`TOGETHER`."""
TOGETHER: Final = timedelta(minutes=10)
PAUSE: Final = timedelta(minutes=10)
LONGEST_PAUSE: Final = timedelta(hours=2)
MEMORY: Final = 2 * LONGEST_PAUSE
"""Failures that are older do not count."""
MAX_SHARE: Final = 0.5
"""If a larger share of nodes seems non-operational, they are not the cause."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why starts of machines avoid a node: all until ``until``, then all but one at a time."""

    until: datetime
    """End of the pause, and start of the trial."""
    machines: int
    """Number of machines that failed to start there and ran elsewhere, since the last success."""
    namespaces: int
    """Number of these machines' namespaces; a user may have only one."""

    def is_on_trial(self, now: datetime) -> bool:
        """Return whether the pause is over, so one start at a time may go to the node."""
        return now >= self.until

    def message(self) -> str:
        """Return, for people, why starts avoid the node."""
        return (
            f"{self.evidence()}; starts avoid it until {times.to_rfc3339(self.until)}, and then go there one at a time until one succeeds"
        )

    def evidence(self) -> str:
        """Return, for people, what happened on the node."""
        return f"{self.machines} virtual machines failed to start there and ran on other nodes"


def nodes_of_failures(vm: Mapping[str, Any], now: datetime | None = None) -> list[str]:
    """Return the nodes where the machine failed to start before it ran, with the same spec, on another node.

    With ``now``, only failures less than ``MEMORY`` ago count.
    """
    return sorted({node for node, moment in _failures(vm) if now is None or now - moment < MEMORY})


def tried_nodes(vm: Mapping[str, Any]) -> list[str]:
    """Return the nodes of ``status.attempts``: where attempts started, and where migrations moved them."""
    return sorted({node for each in _attempts(vm) for node in (_started_on(each), str(each.get("nodeName") or "")) if node})


def non_operational(nodes: Mapping[str, Object], machines: Mapping[str, Collection[Object]], now: datetime) -> dict[str, Verdict]:
    """Return a Verdict per node that starts should avoid: :func:`verdicts`, but empty if these are :func:`too_many`."""
    found = verdicts(nodes, machines, now)
    return {} if too_many(found, nodes) else found


def too_many(found: Sized, nodes: Sized) -> bool:
    """Return whether the nodes with a Verdict are several, and more than ``MAX_SHARE`` of all: the cause is elsewhere."""
    return len(found) > max(1, int(len(nodes) * MAX_SHARE))


def verdicts(nodes: Mapping[str, Object], machines: Mapping[str, Collection[Object]], now: datetime) -> dict[str, Verdict]:
    """Return a Verdict per node where starts failed.

    ``nodes``: all, by name. ``machines`` has, for each suspected node, all machines with an attempt there.
    """
    return {name: verdict for name, tried in machines.items() if name in nodes and (verdict := _verdict(nodes[name], tried, now))}


def _verdict(node: Object, machines: Collection[Object], now: datetime) -> Verdict | None:
    name = str(node["metadata"]["name"])
    cleared = max((each for each in (*_successes(name, machines), *_repairs(node)) if each <= now), default=None)
    failed = sorted(
        (moment, key.namespace)
        for key, each in {key_of(each): each for each in machines}.items()
        if (moment := max((at for where, at in _failures(each) if where == name), default=None)) is not None
        and (cleared is None or moment > cleared)
        and now - MEMORY < moment <= now
    )
    if not any(later - earlier <= TOGETHER for (earlier, _), (later, _) in zip(failed, failed[MACHINES - 1 :], strict=False)):
        return None
    pause = min(PAUSE * 2 ** min(len(failed) - MACHINES, 10), LONGEST_PAUSE)
    return Verdict(failed[-1][0] + pause, len(failed), len({namespace for _, namespace in failed}))


def _failures(vm: Mapping[str, Any]) -> Iterator[tuple[str, datetime]]:
    ran: set[tuple[str, str]] = set()
    for each in reversed(_attempts(vm)):
        node, spec = _started_on(each), str(each.get("generation"))
        if each.get("runningTime"):
            ran.add((node, spec))
        elif (
            node
            and each.get("result") == power.RESULT_FAILED
            and any(other != node and given == spec for other, given in ran)
            and (moment := times.parsed(each.get("endTime")))
        ):
            yield node, moment


def _successes(node: str, machines: Iterable[Mapping[str, Any]]) -> Iterator[datetime]:
    for vm in machines:
        for each in _attempts(vm):
            if _started_on(each) == node and (moment := times.parsed(each.get("runningTime"))):
                yield moment


def _started_on(attempt: Mapping[str, Any]) -> str:
    """Return the node where the attempt started. A migration changes only ``nodeName``."""
    return str(attempt.get("startNodeName") or attempt.get("nodeName") or "")


def _repairs(node: Object) -> Iterator[datetime]:
    for found in (annotations_of(node).get(REPAIRED_ANNOTATION), dig(node, "metadata", "creationTimestamp")):
        if moment := times.parsed(found):
            yield moment


def _attempts(vm: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    status = vm.get("status")
    found = status.get("attempts") if isinstance(status, dict) else None
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
