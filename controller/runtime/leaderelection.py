"""Leader election with a Lease of coordination.k8s.io, like client-go's leaderelection.

A candidate takes the lease if it has no holder, or if it saw no renewal for the holder's ``leaseDurationSeconds``, by its own clock. The
leader renews every ``retry_seconds``. Its work is cancelled ``renew_deadline_seconds`` after the start of the last successful renewal.

This cannot guarantee exclusion: a process frozen during a request may send it later. So code that must act once does not rely on it: pods
have unique names, and writes have a resourceVersion.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from apiserver.apis.core.resources import LEASES
from apiserver.apis.meta import errors, times
from apiserver.apis.meta.objects import Object, dig, resource_version_of
from apiserver.apis.meta.resources import Resource
from apiserver.client.rest import TransportError
from controller.runtime.clock import Clock

logger = logging.getLogger(__name__)


class LeadershipLost(Exception):
    """The lease was not renewed in time, or has another holder; the process must end."""


class Leases(Protocol):
    """The methods of :class:`apiserver.client.rest.Client` that leader election uses."""

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Object: ...  # noqa: D102 - as in Client
    async def create(self, resource: Resource, obj: Object, namespace: str | None = None) -> Object: ...  # noqa: D102 - as in Client
    async def update(self, resource: Resource, obj: Object) -> Object: ...  # noqa: D102 - as in Client


@dataclass(frozen=True, slots=True)
class Settings:
    """The lease, our identity, and client-go's default times. Raises ValueError unless retry < renew deadline < duration."""

    namespace: str
    name: str
    identity: str
    """Unique per run of the process: a restarted one waits until its own lease expires."""
    lease_duration_seconds: int = 15
    renew_deadline_seconds: float = 10.0
    retry_seconds: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < self.retry_seconds < self.renew_deadline_seconds < self.lease_duration_seconds:
            raise ValueError("leader election needs retry < renew deadline < lease duration")


class LeaderElector:
    """One candidate for leadership."""

    def __init__(self, leases: Leases, settings: Settings, clock: Clock) -> None:
        self._leases = leases
        self._settings = settings
        self._clock = clock
        self._seen: tuple[str, float] = ("", 0.0)
        """resourceVersion of the lease, and when (loop time) we first saw it."""
        self._renewed_at = float("-inf")
        self._written: Object | None = None
        """The lease as we last wrote it. Renewing this one needs no read, as in client-go."""
        self.is_leader = False

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Wait until elected, then run ``lead`` while we hold the lease.

        Once ``lead`` has returned, or was stopped by a cancellation, the lease is released, so the next leader need not wait. Raises
        LeadershipLost after ``lead`` was stopped; errors of ``lead`` in an exception group.
        """
        await self._acquire()
        logger.info("became the leader", extra={"lease": self._settings.name, "identity": self._settings.identity})
        losses: list[BaseException] = []
        try:
            async with asyncio.TaskGroup() as tasks:
                renewing = tasks.create_task(self._renew())
                await lead()
                renewing.cancel()
        except* LeadershipLost as lost:
            self.is_leader = False
            losses += lost.exceptions
        finally:
            if self.is_leader:
                self.is_leader = False
                await self._release()
        if losses:  # Python before 3.11.4 wraps exceptions raised in `except*` into a group
            raise losses[0]

    async def _acquire(self) -> None:
        while True:
            try:
                if await self._try():
                    self.is_leader = True
                    return
            except (errors.StatusError, TransportError) as error:
                logger.info("cannot acquire the lease, retrying", extra={"lease": self._settings.name, "error": str(error)})
            await asyncio.sleep(self._settings.retry_seconds)

    async def _renew(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            deadline = self._renewed_at + self._settings.renew_deadline_seconds
            await asyncio.sleep(max(0.0, min(self._settings.retry_seconds, deadline - loop.time())))
            try:
                async with asyncio.timeout_at(deadline):
                    if not await self._try():
                        raise LeadershipLost(f"lease {self._settings.name} is held by another replica")
            except (errors.StatusError, TransportError, TimeoutError) as error:
                logger.warning("cannot renew the lease", extra={"lease": self._settings.name, "error": str(error)})
                if loop.time() >= deadline:
                    raise LeadershipLost(f"lease {self._settings.name} could not be renewed in time") from error

    async def _try(self) -> bool:
        began = asyncio.get_running_loop().time()
        settings = self._settings
        known, self._written = self._written, None
        with suppress(errors.Conflict, errors.NotFound):
            if known is not None:
                self._written = await self._update(known)
        if self._written is None:
            try:
                lease = await self._leases.get(LEASES, settings.name, settings.namespace)
            except errors.NotFound:
                fresh = {"metadata": {"name": settings.name, "namespace": settings.namespace}, "spec": self._spec({})}
                self._written = await self._leases.create(LEASES, fresh, settings.namespace)
            else:
                if not self._is_free(lease):
                    return False
                self._written = await self._update(lease)
        self._renewed_at = began
        return True

    async def _update(self, lease: Object) -> Object:
        return await self._leases.update(LEASES, {**lease, "spec": self._spec(lease.get("spec") or {})})

    def _is_free(self, lease: Object) -> bool:
        now = asyncio.get_running_loop().time()
        if resource_version_of(lease) != self._seen[0]:
            self._seen = (resource_version_of(lease), now)
        holder = dig(lease, "spec", "holderIdentity") or ""
        if holder in ("", self._settings.identity):
            return True
        duration = dig(lease, "spec", "leaseDurationSeconds") or self._settings.lease_duration_seconds
        return now - self._seen[1] > float(duration)

    def _spec(self, old: Object) -> Object:
        now = times.to_rfc3339_micro(self._clock.now())
        ours = old.get("holderIdentity") == self._settings.identity
        return {
            **old,
            "holderIdentity": self._settings.identity,
            "leaseDurationSeconds": self._settings.lease_duration_seconds,
            "acquireTime": (old.get("acquireTime") or now) if ours else now,
            "renewTime": now,
            "leaseTransitions": int(old.get("leaseTransitions") or 0) + (0 if ours else 1),
        }

    async def _release(self) -> None:
        with suppress(errors.StatusError, TransportError, TimeoutError):
            async with asyncio.timeout(self._settings.retry_seconds):
                lease = await self._leases.get(LEASES, self._settings.name, self._settings.namespace)
                if dig(lease, "spec", "holderIdentity") == self._settings.identity:
                    spec = {**lease["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
                    await self._leases.update(LEASES, {**lease, "spec": spec})
