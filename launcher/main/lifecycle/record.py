"""The newest state of the pod's domain."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Concatenate, ParamSpec

from launcher.main.decisions import known, life
from launcher.main.decisions.known import Known
from launcher.main.programs import pod_memory, qemu_log

logger = logging.getLogger(__name__)

P = ParamSpec("P")


class Record:
    """Holds the state of the pod's domain, and reports changes."""

    def __init__(
        self,
        *,
        qemu_log: Callable[[str], Path],
        status_changed: Callable[[], None],
        lacked_memory: Callable[[], bool] = pod_memory.was_lacking,
        gets_devices: bool = True,
    ) -> None:
        self.known = Known(gets_devices=gets_devices)
        """Read it again after each await."""
        self.over = asyncio.Event()
        """Set once ``known.over``."""
        self.operation = asyncio.Lock()
        """Held by requests that make the domain, move it or change its state: one at a time."""
        self._qemu_log = qemu_log
        self._status_changed = status_changed
        self._lacked_memory = lacked_memory

    @property
    def log(self) -> Path | None:
        """Return the file with QEMU's output; None before a domain has a name."""
        return self._qemu_log(self.known.name) if self.known.name else None

    def take(self, fact: Callable[Concatenate[Known, P], Known], *args: P.args, **kwargs: P.kwargs) -> None:
        """Replace the state by the result of a function of ``launcher.main.decisions.known``, and report changes."""
        before, after = self.known, fact(self.known, *args, **kwargs)
        if after.ended and not before.ended:
            after = self._with_cause(after)
        self.known = after
        _tell(before, after)
        if after.over:
            self.over.set()
        if after.status is not before.status:
            self._status_changed()

    def _with_cause(self, after: Known) -> Known:
        if life.exit_code(after.status.ending) == 0:
            return after
        return known.with_cause(after, qemu_log.last_lines(self._qemu_log(after.name)), lacked_memory=self._lacked_memory())


def _tell(before: Known, after: Known) -> None:
    was, now = before.status, after.status
    if now.domain is not None and (was.domain is None or (now.domain.state, now.domain.reason) != (was.domain.state, was.domain.reason)):
        logger.info("the guest is %s (%s)", now.domain.state, now.domain.detail or now.domain.reason, extra={"domain": now.domain.name})
    if now.reboots > was.reboots:
        logger.info("the guest rebooted")
    if now.watchdogs > was.watchdogs:
        logger.warning("the guest's watchdog fired")
    if lost := [each for each in now.lost_filesystems if each not in was.lost_filesystems]:
        logger.warning("virtiofsd of a file system of the guest ended", extra={"filesystems": lost})
    if now.ending is not None and was.ending is None:
        logger.info("the domain ended", extra={"ending": now.ending.kind, "reason": now.ending.message})
