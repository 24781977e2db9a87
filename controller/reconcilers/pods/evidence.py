"""Gathers evidence about pods that may have a guest: their nodes' reports, and the time since they are gone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from apiserver.apis.meta.objects import Object
from controller.reconcilers.nodes.node_reports import NodeReports
from controller.reconcilers.pods import liveness
from controller.reconcilers.pods.absences import Absences
from controller.reconcilers.pods.liveness import Absent, Decider, Evidence, Unknown


@dataclass(frozen=True, slots=True)
class Timed:
    """A pod that is gone, and the Absences that measure since when."""

    pod: Absent
    absences: Absences
    named_by: Object
    """The machine or the Migration with the pod in its status."""


async def gather(reports: NodeReports, nodes: Iterable[str], absent: Sequence[Timed]) -> Evidence:
    """Return Evidence: unreachable ``nodes``, their guardians' promises, absent and sealed pods. Record in Absences whether nodes report.

    The grace period of an absent pod begins again when its kubelet reports: until then it ended no container.
    """
    named = {node for node in nodes if node}
    unreachable = await reports.unreachable(named)
    promised = {node: pods for node in named if (pods := reports.promised_pods(node)) is not None}
    virtual = frozenset(filter(reports.is_virtual, named))
    found = Evidence(unreachable, tuple(each.pod for each in absent), reports.sealed_pods(), promised, virtual)
    for each in absent:
        verdict = liveness.verdict(each.pod, found)
        if isinstance(verdict, Unknown) and verdict.until is not Decider.TIME:
            each.absences.hold(each.named_by)
        if verdict not in (liveness.LOST, liveness.FENCED, liveness.SEALED):
            each.absences.note_report(each.named_by)
    return found
