"""The networks of this node's pods, each set up once per process, and retried after failures.

Attempts run programs of the host, and launchers and guests can cause any number. So each pod has a burst of ``Limits.network_tries_burst``
attempts or changes of cards, and then one every ``network_seconds``; in between, the last fault is raised.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from apiserver.apis.virt.lifecycle import conditions
from controller.runtime.clock import Clock
from controller.runtime.flowcontrol import TokenBucket
from handler.network.binding import Interface, Unsupported
from handler.network.namespaces import CommandFailed
from handler.plugins.faults import Fault
from handler.pods.launcher import Connection
from handler.reconcilers.guests.guest_status import NetworkFault, printable
from handler.reconcilers.limits import DEFAULT, Limits

logger = logging.getLogger(__name__)

Prepare = Callable[[Mapping[str, Any], str, Connection], Awaitable[tuple[Interface, ...]]]
"""Sets up the network of a pod, given by its uid and launcher. Raises Unsupported, CommandFailed, Fault."""

HEALING: Final = (CommandFailed, Fault)
"""Errors that may be temporary."""


class TooManyChanges(Exception):
    """The cards of a pod changed too often; the next change may begin after ``seconds``."""

    def __init__(self, seconds: float) -> None:
        super().__init__("the network cards of this pod changed too often; the next change waits")
        self.seconds = seconds


@dataclass(slots=True)
class _Failing:
    since: datetime
    tries: TokenBucket
    fault: CommandFailed | Fault | Unsupported


class PodNetworks:
    """Sets up the networks of this node's pods."""

    def __init__(self, prepare: Prepare, clock: Clock, limits: Limits = DEFAULT) -> None:
        self._prepare = prepare
        self._clock = clock
        self._limits = limits
        self._interfaces: dict[str, tuple[Interface, ...]] = {}
        self._failing: dict[str, _Failing] = {}
        self._changes: dict[str, TokenBucket] = {}

    def interfaces(self, pod_uid: str) -> tuple[Interface, ...] | None:
        """Return a pod's interfaces if this process has set up its network, else None."""
        return self._interfaces.get(pod_uid)

    def may_heal(self, pod_uid: str) -> bool:
        """Return whether the last set-up of the pod's network failed with a possibly temporary error."""
        failing = self._failing.get(pod_uid)
        return failing is not None and isinstance(failing.fault, HEALING)

    async def set_up(self, vm: Mapping[str, Any], pod_uid: str, connection: Connection) -> tuple[Interface, ...]:
        """Set up the pod's network, and return the guest's interfaces.

        Raises Unsupported if the machine's network is impossible; CommandFailed if a program failed, Fault if a plugin did, in this attempt
        or, if another is too early, in the last one.
        """
        if (interfaces := self._interfaces.get(pod_uid)) is not None:
            return interfaces
        failing, now = self._failing.get(pod_uid), asyncio.get_running_loop().time()
        if failing is not None and not failing.tries.try_accept(now):
            raise type(failing.fault)(str(failing.fault))
        begun = self._clock.now()
        try:
            interfaces = await self._prepare(vm, pod_uid, connection)
        except (*HEALING, Unsupported) as fault:
            logger.warning("cannot prepare the network of pod %s: %s", pod_uid, printable(str(fault)))
            if failing is None:
                failing = self._failing[pod_uid] = _Failing(begun, self._bucket(now), fault)
            failing.fault = type(fault)(str(fault))  # without its traceback
            raise
        self._interfaces[pod_uid] = interfaces
        self._failing.pop(pod_uid, None)
        return interfaces

    def begin_change(self, pod_uid: str) -> None:
        """Count a change of the pod's cards. Raises TooManyChanges if the rate limit forbids it now."""
        now = asyncio.get_running_loop().time()
        bucket = self._changes.setdefault(pod_uid, self._bucket(now))
        if not bucket.try_accept(now):
            raise TooManyChanges(bucket.delay(now))

    def _bucket(self, now: float) -> TokenBucket:
        return TokenBucket(self._limits.network_tries_burst, 1 / self._limits.network_seconds, now)

    def add(self, pod_uid: str, interface: Interface) -> None:
        """Remember a card that the guest gets, replacing one of this name."""
        self.remove(pod_uid, interface.name)
        self._interfaces[pod_uid] = (*self._interfaces.get(pod_uid, ()), interface)

    def remove(self, pod_uid: str, card: str) -> None:
        """Forget a card that the guest gave back."""
        if pod_uid in self._interfaces:
            self._interfaces[pod_uid] = tuple(each for each in self._interfaces[pod_uid] if each.name != card)

    async def ensure(self, vm: Mapping[str, Any], pod_uid: str, connection: Connection) -> NetworkFault | None:
        """Set up a running guest's network and filters, unless this process did before; return the fault to report, or None."""
        try:
            await self.set_up(vm, pod_uid, connection)
        except Unsupported as error:
            return NetworkFault(conditions.NETWORK_NOT_SUPPORTED, str(error))
        except HEALING as error:
            return self.lasting(pod_uid, error)
        return None

    def lasting(self, pod_uid: str, error: CommandFailed | Fault) -> NetworkFault | None:
        """Return the network's fault to report, once it has lasted ``network_heals_seconds``; before that None."""
        failing = self._failing.get(pod_uid)
        lasts = failing is not None and (self._clock.now() - failing.since).total_seconds() >= self._limits.network_heals_seconds
        reason = error.reason if isinstance(error, Fault) else conditions.NETWORK_NOT_READY
        return NetworkFault(reason, str(error)) if lasts else None

    def forget(self, is_alive: Callable[[str], bool]) -> None:
        """Drop the state of pods that are gone."""
        self._interfaces = {uid: interfaces for uid, interfaces in self._interfaces.items() if is_alive(uid)}
        self._failing = {uid: failing for uid, failing in self._failing.items() if is_alive(uid)}
        self._changes = {uid: bucket for uid, bucket in self._changes.items() if is_alive(uid)}
