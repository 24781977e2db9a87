"""The loop for guests with this node in ``status.nodeName``: observe, plan, apply.

Every write carries the resourceVersion it is based on; after a Conflict the loop runs again. No state survives restarts, and virt-launcher
starts a domain only once per pod.
"""

from __future__ import annotations

import asyncio
import logging

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import phases
from controller.runtime.reconciling import Request, Result
from handler.pods.links import Holder, Link
from handler.reconcilers.guests import claim_imports, guest_plan
from handler.reconcilers.guests.guest_applying import Applier
from handler.reconcilers.guests.guest_ports import Ports
from handler.reconcilers.guests.guest_start import GuestStart
from handler.reconcilers.guests.guest_writes import StatusWriter
from handler.reconcilers.limits import MAX_STEPS

logger = logging.getLogger(__name__)


class RunGuest:
    """The reconciler of this node's guests with their machines."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._writer = StatusWriter(ports)
        self._start = GuestStart(ports, self._writer)
        self._applier = Applier(ports, self._writer, self._start)

    async def reconcile(self, request: Request) -> Result:
        """Reconcile one guest with its machine; return when to check again."""
        before: tuple[guest_plan.Action, ...] = ()
        for _ in range(MAX_STEPS):
            vm = self._ports.machines.get(request.namespace, request.name)
            link = self._link(request, vm)
            self._forget()  # only now: the target of a guest's migration may need nothing any more
            if vm is None or link is None:
                return Result()
            actions = guest_plan.plan(self._observe(vm, link))
            if actions and actions == before:
                break  # done without effect
            rest, before = await self._applier.apply(vm, link, actions), actions
            if rest is not None:
                return rest
        logger.warning("virt-launcher of virtual machine %s reports another guest state than this process expects", request)
        return Result(requeue_after=self._ports.limits.disagree_seconds)

    def _link(self, request: Request, vm: Object | None) -> Link | None:
        holder = Holder("vm", request)
        pod_uid = dig_vm(vm, "status", "podUID") or ""
        concerned = phases.phase_of(vm or {}) in phases.HANDLED
        self._ports.links.release(holder, keep=(pod_uid, *claim_imports.pods(vm)) if vm is not None and concerned else ())
        if vm is None:
            self._writer.forget_machine(request)
        return self._ports.links.acquire(pod_uid, holder) if pod_uid and concerned else None

    def _observe(self, vm: Object, link: Link) -> guest_plan.Observed:
        return guest_plan.Observed(
            vm=vm,
            launcher=link.status,
            connected=link.connection is not None,
            gone=link.gone,
            starting=self._start.is_starting(link.pod_uid),
            operations=link.connection.operations if link.connection is not None else frozenset(),
            failures=self._applier.failures_of(link.pod_uid),
            failed_steps=self._applier.failed_steps.of(link.pod_uid),
            now=asyncio.get_running_loop().time(),
            not_understood=link.not_understood,
        )

    def _forget(self) -> None:
        for part in (self._ports.networks, self._ports.probes, self._ports.disks, self._start, self._applier):
            part.forget(self._ports.links.is_alive)
        self._writer.forget_pods(self._ports.links.is_alive)
