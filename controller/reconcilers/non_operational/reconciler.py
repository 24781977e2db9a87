"""The loop that gives non-operational nodes their condition and taint, and takes both back."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from datetime import datetime

from apiserver.apis.core.resources import NODES
from apiserver.apis.meta import errors
from apiserver.apis.meta.objects import NamespacedName, Object, annotations_of, name_of, uid_of
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import failed_starts
from apiserver.client.rest import STRATEGIC_MERGE_PATCH, Client
from controller.reconcilers.indexes import Informers
from controller.reconcilers.nodes.node_reports import Census, NodeReports
from controller.reconcilers.non_operational import marking_plan
from controller.reconcilers.non_operational.marking_plan import Action, Observed, SetCondition, SetTaint, Verdicts
from controller.reconcilers.settings import FIELD_MANAGER, TaintEffect
from controller.reconcilers.shared import Shared
from controller.runtime.clock import Clock
from controller.runtime.reconciling import Controller, Request, Result

logger = logging.getLogger(__name__)


class NonOperationalNodes:
    """The reconciler that sets condition and taint of Nodes where guests do not start, and clears both."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        informers: Informers,
        reports: NodeReports,
        effect: TaintEffect,
        elapsed: Callable[[], float],
        shared_seconds: float,
    ) -> None:
        self._client = client
        self._clock = clock
        self._informers = informers
        self._reports = reports
        self._effect = effect
        self._verdicts = Shared[Verdicts](elapsed, shared_seconds)
        self._settle_seconds = 1.5 * shared_seconds  # after an event, so the shared verdicts include it

    def subscribe(self, controller: Controller) -> None:
        """Enqueue a node after failed starts, its repair, a changed taint, and if it is marked when virt-controller starts.

        A kubelet can write conditions, so a changed one enqueues nothing.
        """

        def node_changed(old: Object | None, new: Object | None) -> None:
            if new is not None and (marking_plan.is_marked(new) if old is None else _concern(old) != _concern(new)):
                controller.queue.add_after(NamespacedName("", name_of(new)), self._settle_seconds)

        def machine_changed(old: Object | None, new: Object | None) -> None:
            for node in _nodes_of_changed_failures(old, new):
                controller.queue.add_after(NamespacedName("", node), self._settle_seconds)

        self._informers.nodes.subscribe(node_changed)
        self._informers.vms.subscribe(machine_changed)

    async def reconcile(self, request: Request) -> Result:
        """Write condition and taint of one node, if they are not as planned."""
        cached = self._informers.nodes.get("", request.name)
        if cached is None:
            return Result()
        seen = self._observe(cached)
        if marking_plan.plan(seen):
            try:
                node = await self._client.get(NODES, request.name)
            except errors.NotFound:
                return Result()
            if uid_of(node) != uid_of(cached):
                return Result(self._settle_seconds)  # the verdict is about an earlier Node
            for action in marking_plan.plan(dataclasses.replace(seen, node=node)):
                node = await self._apply(node, action)
            self._informers.nodes.remember(node)
        return Result(marking_plan.next_look(seen))

    def _observe(self, node: Object) -> Observed:
        now = self._clock.now()
        found = self._verdicts.value(lambda: self._judge(now))
        census = self._reports.census() if found.by_node else Census(0, 0)
        return marking_plan.observe(node, found, census, self._effect, now)

    def _judge(self, now: datetime) -> Verdicts:
        found = self._informers.verdicts(now)
        return Verdicts(self._informers.suspects(now), found, self._informers.too_many(found))

    async def _apply(self, node: Object, action: Action) -> Object:
        match action:
            case SetCondition():
                patch = marking_plan.status_patch(node, action, self._clock.now())
                return await self._client.patch(
                    NODES, name_of(node), patch, subresource="status", content_type=STRATEGIC_MERGE_PATCH, field_manager=FIELD_MANAGER
                )
            case SetTaint(effect):
                logger.warning("updating the taint of a non-operational node", extra={"node": name_of(node), "effect": effect or "removed"})
                return await self._client.update(NODES, marking_plan.with_taint(node, effect), field_manager=FIELD_MANAGER)


def _concern(node: Object) -> object:
    return (uid_of(node), annotations_of(node).get(failed_starts.REPAIRED_ANNOTATION), marking_plan.effects_of(node))


def _nodes_of_changed_failures(old: Object | None, new: Object | None) -> set[str]:
    before, after = ({} if each is None else each for each in (old, new))
    if dig_vm(before, "status", "attempts") == dig_vm(after, "status", "attempts"):
        return set()
    return {*failed_starts.nodes_of_failures(before), *failed_starts.nodes_of_failures(after)}
