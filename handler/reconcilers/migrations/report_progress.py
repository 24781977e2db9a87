"""The loop that writes the progress of outgoing migrations; ``migration_progress`` decides what and when."""

from __future__ import annotations

import asyncio
from typing import Final

from apiserver.apis.meta import errors, objects
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.kinds import dig_migration
from apiserver.apis.virt.lifecycle import migration_attempts, phases
from apiserver.apis.virt.places.resources import MIGRATIONS, VIRTUAL_MACHINES
from controller.runtime.reconciling import Request, Result
from handler.pods.links import Holder, Link
from handler.reconcilers import validation
from handler.reconcilers.migrations import migration_progress
from handler.reconcilers.migrations.migration_ports import Ports
from handler.reconcilers.migrations.migration_progress import Course
from handler.reconcilers.migrations.side_plan import source_pod
from launcher.protocol import messages

NOT_CONVERGING: Final = "MigrationNotConverging"
LEFT: Final = (errors.Conflict, errors.NotFound, errors.Forbidden, errors.Invalid, errors.BadRequest)
"""Refusals after which the next statistics are tried: a concurrent write, or an older virt-api."""


class ReportProgress:
    """The reconciler of outgoing migrations' progress. The source's loop reports invalid Migrations."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._courses: dict[Request, tuple[str, Course]] = {}
        """With the attempt's uid."""

    async def reconcile(self, request: Request) -> Result:
        """Write virt-launcher's newest statistics into the Migration, if it is time; return when to check again."""
        migration = self._ports.migrations.get(request.namespace, request.name)
        is_moving = dig_migration(migration, "status", "phase") == phases.RUNNING
        if migration is None or not is_moving or validation.validate_migration(migration):
            self._courses.pop(request, None)
            self._ports.links.release(Holder("progress", request))
            return Result()
        uid = migration_attempts.uid_of(migration)
        report = _moving(self._link(request, migration), uid)
        if report is None:
            return Result()
        of, course = self._courses.get(request, ("", Course()))
        step = migration_progress.plan(
            migration,
            report,
            course if of == uid else Course(),
            asyncio.get_running_loop().time(),
            self._ports.clock.now(),
            write_seconds=self._ports.limits.progress_seconds,
        )
        self._courses[request] = (uid, step.course)
        if step.status is None:
            return Result(step.again)
        return await self._write({**migration, "status": step.status}, step)

    def _link(self, request: Request, migration: Object) -> Link | None:
        vm = self._ports.machines.get(request.namespace, str(dig_migration(migration, "spec", "selector", "name") or ""))
        pod_uid = source_pod(vm, migration)
        return self._ports.links.acquire(pod_uid, Holder("progress", request)) if pod_uid else None

    async def _write(self, migration: Object, step: migration_progress.Step) -> Result:
        try:
            written = await self._ports.api.update(MIGRATIONS, migration, subresource="status")
        except LEFT:
            return Result(self._ports.limits.progress_seconds)
        self._ports.migrations.remember(written)
        if step.warning:
            self._emit(written, step.warning)
        return Result()

    def _emit(self, migration: Object, message: str) -> None:
        self._ports.events.event(migration, MIGRATIONS, "Warning", NOT_CONVERGING, message)
        name = str(dig_migration(migration, "spec", "selector", "name") or "")
        if (vm := self._ports.machines.get(objects.namespace_of(migration), name)) is not None:
            self._ports.events.event(vm, VIRTUAL_MACHINES, "Warning", NOT_CONVERGING, message)


def _moving(link: Link | None, uid: str) -> messages.MigrationStatus | None:
    report = link.status.migration_of(uid) if link is not None and link.status is not None else None
    if report is None or (report.direction, report.state) != ("outgoing", "running"):
        return None
    return report if report.memory_total_bytes > 0 or report.data_total_bytes > 0 else None
