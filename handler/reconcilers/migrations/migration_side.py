"""The common loop of both sides of a live migration, which identifies and writes the Migration."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, Literal, TypeVar

from apiserver.apis.meta import objects, times
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt import structure
from apiserver.apis.virt.kinds import dig_migration
from apiserver.apis.virt.lifecycle import migration_attempts, phases
from apiserver.apis.virt.places.resources import MIGRATIONS, VIRTUAL_MACHINES
from controller.runtime.reconciling import InvalidObject, Request, Result
from handler.pods.launcher import Connection, Disconnected
from handler.pods.links import Link
from handler.reconcilers.limits import MAX_STEPS
from handler.reconcilers.migrations import migration_progress
from handler.reconcilers.migrations.migration_ports import Ports

Action = TypeVar("Action")


class Side(ABC, Generic[Action]):
    """Base of the reconcilers of a migration's source and target; ``Action`` is the type of their plans' actions."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self.ending = False
        """This virt-handler will end soon: no migration begins."""
        self._uids: dict[Request, str] = {}
        """Uids of attempts (``migration_attempts.uid_of``), as everywhere here."""

    async def reconcile(self, request: Request) -> Result:
        """Plan and apply actions until this side must wait; return when to check again."""
        before: tuple[Action, ...] = ()
        for _ in range(MAX_STEPS):
            migration = self._ports.migrations.get(request.namespace, request.name)
            if migration is None:
                self._forget(request)
                return Result()
            if self._is_another(request, migration):
                self._forget(request)
                continue
            link = self._link(request, migration)
            actions = self._plan(migration, link)
            if actions and actions == before:
                break
            before = actions
            rest: Result | None = Result()
            for action in actions:
                rest = await self._apply(request, migration, link, action)
            if rest is not None:
                return rest
        return Result(requeue_after=self._ports.limits.disagree_seconds)

    @abstractmethod
    def _link(self, request: Request, migration: Object) -> Link | None:
        """Return the link to this side's pod; None: the pod is unknown yet."""

    @abstractmethod
    def _plan(self, migration: Object, link: Link | None) -> tuple[Action, ...]:
        """Return the next actions of this side."""

    @abstractmethod
    async def _apply(self, request: Request, migration: Object, link: Link | None, action: Action) -> Result | None:
        """Apply an action; return when to check again, or None to plan again at once."""

    @abstractmethod
    def _forget(self, request: Request) -> None:
        """Release everything held for the Migration of this name."""

    def _is_another(self, request: Request, migration: Object) -> bool:
        return self._uids.setdefault(request, migration_attempts.uid_of(migration)) != migration_attempts.uid_of(migration)

    async def _write(self, migration: Object, phase: str, **more: str | Object | list[Object]) -> None:
        now = self._ports.clock.now()
        old = migration.get("status") or {}
        status = {**phases.enter(old, phase, now), **more}
        if phase in phases.MIGRATION_FINAL:
            status.setdefault("endTime", times.to_rfc3339(now))
        if status == old:
            return
        written = await self._ports.api.update(MIGRATIONS, {**migration, "status": status}, subresource="status")
        self._ports.migrations.remember(written)

    def _figures(self, migration: Object, link: Link | None) -> dict[str, Object]:
        report = link.status.migration_of(migration_attempts.uid_of(migration)) if link is not None and link.status is not None else None
        return migration_progress.at_end(report, self._ports.clock.now(), dig_migration(migration, "status", "progress"))

    def _emit(self, migration: Object, type_: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        self._ports.events.event(migration, MIGRATIONS, type_, reason, message)
        if (vm := self._ports.machines.get(objects.namespace_of(migration), vm_name(migration))) is not None:
            self._ports.events.event(vm, VIRTUAL_MACHINES, type_, reason, message)


def vm_name(migration: Object) -> str:
    """Return the name of the migrated machine; else empty."""
    return str(dig_migration(migration, "spec", "selector", "name") or "")


def validated(vm: Object) -> Object:
    """Validate a machine that no loop of this process has validated, and return it. Raises InvalidObject."""
    if faults := structure.of_virtual_machine(vm):
        raise InvalidObject(f"virtual machine {objects.name_of(vm)}: {'; '.join(faults)}")
    return vm


def connection_of(link: Link | None) -> Connection:
    """Return the link's connection to its launcher. Raises Disconnected without a link or connection."""
    if link is None:
        raise Disconnected("virt-launcher is not connected")
    return link.connected()
