"""The loop that fences unreachable nodes, if the administrator configured a fence agent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from apiserver.apis.core.resources import NODES
from apiserver.apis.meta import errors, times
from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.objects import NamespacedName, Object, condition, dig, name_of
from apiserver.apis.virt.places import fencing, node_states
from apiserver.client.backoff import Backoff
from apiserver.client.rest import Client
from controller.reconcilers.fencing import fencing_plan
from controller.reconcilers.fencing.fence_agent import Agent, Failed
from controller.reconcilers.fencing.fencing_plan import Fence, Nothing, Observed, Refuse, Unfence, Wait
from controller.reconcilers.indexes import BY_TRIED_NODE, Informers
from controller.reconcilers.nodes.node_reports import NodeReports
from controller.reconcilers.settings import FIELD_MANAGER
from controller.runtime.clock import Clock
from controller.runtime.reconciling import Controller, Request, Result
from controller.runtime.recorder import Recorder

logger = logging.getLogger(__name__)

_PAUSES: Final = (2.0, 60.0)
"""Shortest and longest pause after a failed call, in seconds."""
_WATCH_SECONDS: Final = 0.2
"""Between checks whether a node reports while the agent switches it off."""


class Fencing:
    """The reconciler of Nodes: fences those that do not report, by the agent, and unfences those that have started again."""

    def __init__(
        self,
        client: Client,
        recorder: Recorder,
        clock: Clock,
        informers: Informers,
        reports: NodeReports,
        agent: Agent,
        *,
        delay: float,
        elapsed: Callable[[], float],
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._clock = clock
        self._informers = informers
        self._reports = reports
        self._agent = agent
        self._delay = delay
        self._elapsed = elapsed
        self._unreachable_since: dict[str, float] = {}
        self._pauses: dict[str, Backoff] = {}

    def subscribe(self, controller: Controller) -> None:
        """Enqueue a node when it is new, or when its reports begin or end."""

        def changed(old: Object | None, new: Object | None) -> None:
            if new is not None and (old is None or _ready(old) != _ready(new)):
                controller.enqueue(NamespacedName("", name_of(new)))

        self._informers.nodes.subscribe(changed)
        self._reports.subscribe(lambda node: controller.enqueue(NamespacedName("", node)))

    async def reconcile(self, request: Request) -> Result:
        """Fence or unfence one node if needed."""
        cached = self._informers.nodes.get("", request.name)
        if cached is None or not fencing_plan.is_of_interest(cached, self._waiting(request.name)):
            self._forget(request.name)
            is_unreachable = cached is not None and node_states.kubelet_is_unreachable(cached)
            return Result(fencing_plan.LOOK_SECONDS if is_unreachable else None)
        try:
            node = await self._client.get(NODES, request.name)
        except errors.NotFound:
            self._forget(request.name)
            return Result()
        decision = fencing_plan.plan(await self._observe(node))
        match decision:
            case Wait(seconds):
                return Result(seconds)
            case Refuse(message):
                self._warn(node, "FencingRefused", message)
                return Result(fencing_plan.LOOK_SECONDS)
            case Fence():
                return await self._fence(node)
            case Unfence():
                await self._unfence(node)
            case Nothing():
                pass
        self._forget(request.name)
        return Result()

    async def _observe(self, node: Object) -> Observed:
        self._informers.nodes.remember(node)
        name = name_of(node)
        left = (await self._reports.unreachable({name})).left(name)
        census = self._reports.census()
        if left != 0:
            self._unreachable_since.pop(name, None)
        else:
            self._unreachable_since.setdefault(name, self._elapsed())
        return Observed(
            node=node,
            reports_for=left,
            unreachable_for=self._elapsed() - self._unreachable_since.get(name, self._elapsed()),
            waiting=self._waiting(name),
            unreachable=census.unreachable,
            nodes=census.unreachable + census.reporting,
            delay=self._delay,
        )

    def _waiting(self, node: str) -> int:
        return fencing_plan.count_waiting(self._informers.vms.by_index(BY_TRIED_NODE, node), node)

    async def _fence(self, node: Object) -> Result:
        """Ask the agent, then state that the node is off, unless it has started again. If that write fails, the next pass asks again."""
        name = name_of(node)
        logger.warning("fencing a node", extra={"node": name, "agent": self._agent.name})
        try:
            await self._switch_off(node)
            after = await self._client.get(NODES, name)
            if against := fencing_plan.contradiction(node, after):
                raise Failed(against)
        except Failed as failure:
            message = f"fence agent {self._agent.name}: {one_line(str(failure), 600)}. Does the node run? If you are certain that it is off"
            self._warn(node, "FencingFailed", f"{message}: kubectl virt fence {name} --off")
            return Result(self._pauses.setdefault(name, Backoff(*_PAUSES)).next())
        done = f"fence agent {self._agent.name} switched the node off"
        if node_states.boot_of(after) != node_states.boot_of(node):  # its kubelet reports the end of its pods
            self._warn(node, "NodeFenced", f"{done}, and it has started again")
        else:
            by, now = f"{FIELD_MANAGER} with {self._agent.name}", times.to_rfc3339(self._clock.now())
            await self._write(fencing.fenced(after, by, now, until_restart=True))
            self._warn(node, "NodeFenced", f"{done}; its virtual machines start elsewhere")
        self._forget(name)
        return Result()

    async def _switch_off(self, node: Object) -> None:
        """Call the agent. Raises Failed, also if the node reports again meanwhile."""
        try:
            async with asyncio.TaskGroup() as tasks:
                watch = tasks.create_task(self._fail_once_it_reports(name_of(node)))
                await self._agent.switch_off(node)
                watch.cancel()
        except* Failed as failed:
            reason = failed.exceptions[0]
        else:
            return
        raise reason

    async def _fail_once_it_reports(self, name: str) -> None:
        while node_states.kubelet_is_unreachable(self._informers.nodes.get("", name)) and not self._reports.left(name):  # noqa: ASYNC110 - no event covers both
            await asyncio.sleep(_WATCH_SECONDS)
        raise Failed("the node reports again, so the call was ended; it may have switched the node off")

    async def _unfence(self, node: Object) -> None:
        await self._write(fencing.unfenced(node))
        self._recorder.event(node, NODES, "Normal", "NodeUnfenced", "the node has started again after it was fenced")

    async def _write(self, node: Object) -> None:
        self._informers.nodes.remember(await self._client.update(NODES, node, field_manager=FIELD_MANAGER))

    def _forget(self, name: str) -> None:
        self._unreachable_since.pop(name, None)
        self._pauses.pop(name, None)

    def _warn(self, node: Object, reason: str, message: str) -> None:
        self._recorder.event(node, NODES, "Warning", reason, message)


def _ready(node: Object) -> object:
    return (condition(dig(node, "status", "conditions"), "Ready") or {}).get("status")
