"""Probes this node's guests, each with its own period.

Guests that are paused, migrate or shut down are not probed, and results before and after that are not consecutive. A machine's status keeps
the verdict over a restart.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from apiserver.apis.meta import times
from apiserver.apis.virt.lifecycle import power
from apiserver.apis.virt.spec import probes
from apiserver.apis.virt.spec.probes import Probe
from controller.runtime.clock import Clock
from handler.pods.links import Link
from handler.probes.tally import Outcome, Tally, Verdict, counted, interrupted
from launcher.protocol import messages

logger = logging.getLogger(__name__)

FAULT_SECONDS: Final = 30.0
"""After an unexpected exception."""
NO_ADDRESS: Final = "the guest has no address in the pod's network"
NO_PORT: Final = "its port is not between 1 and 65535"
_FIELDS: Final = (probes.READINESS, probes.LIVENESS)


class Question(Protocol):
    """A probe of one guest: ``asking.Question``."""

    async def ask(self, link: Link) -> Outcome:
        """Probe the guest once; return the Outcome."""
        ...


@dataclass(frozen=True, slots=True)
class _Wanted:
    probe: Probe
    address: str
    """Empty for a probe by the guest agent."""


class _Asked:
    def __init__(self, wanted: _Wanted, link: Link, delay: float) -> None:
        self.wanted = wanted
        self.link = link
        self.delay = delay
        self.tally = Tally()
        self.task: asyncio.Task[None] | None = None


class _Key(NamedTuple):
    pod_uid: str
    field: str


class Prober:
    """Runs the probes of this node's guests."""

    def __init__(
        self,
        question: Callable[[Probe, str], Question],
        clock: Clock,
        *,
        may_be_asked: Callable[[messages.Status | None], bool],
        changed: Callable[[Link], None],
        second: float = 1.0,
    ) -> None:
        """Start without probes.

        Args:
            question: makes a probe of the guest at an address, which is empty for the guest agent.
            clock: for the time since the guest's start.
            may_be_asked: whether a guest can answer.
            changed: called when the verdict on a pod's guest changed.
            second: length of a second of ``periodSeconds``; shorter in tests.
        """
        self._question = question
        self._clock = clock
        self._may_be_asked = may_be_asked
        self._changed = changed
        self._second = second
        self._asked: dict[_Key, _Asked] = {}
        self._starting: asyncio.Queue[_Asked] = asyncio.Queue()

    def verdict(self, vm: Mapping[str, Any], link: Link, address: str | None) -> Verdict:
        """Start the machine's missing probes; return the Verdict so far."""
        found = {field: self._take(vm, link, address, field) for field in _FIELDS}
        readiness, liveness = found[probes.READINESS], found[probes.LIVENESS]
        return Verdict(readiness.verdict, readiness.message, liveness.message if liveness.verdict is False else "")

    def forget(self, is_alive: Callable[[str], bool]) -> None:
        """Stop the probes of pods that are gone."""
        for key in [key for key in self._asked if not is_alive(key.pod_uid)]:
            self._drop(key)

    async def run(self) -> None:
        """Run the started probes until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                asked = await self._starting.get()
                if asked in self._asked.values():
                    asked.task = tasks.create_task(self._ask(asked))

    def _take(self, vm: Mapping[str, Any], link: Link, address: str | None, field: str) -> Tally:
        probe, key = probes.of(vm.get("spec") or {}, field), _Key(link.pod_uid, field)
        wanted, problem = _wanted(probe, address)
        asked = self._asked.get(key)
        if asked is not None and (asked.wanted != wanted or asked.link is not link):
            self._drop(key)
            asked = None
        if wanted is None:
            return Tally(message=problem)
        if asked is None:
            asked = self._asked[key] = _Asked(wanted, link, self._delay(vm, wanted.probe))
            self._starting.put_nowait(asked)
        return asked.tally

    def _delay(self, vm: Mapping[str, Any], probe: Probe) -> float:
        delay, began = float(probe.initial_delay_seconds), power.newest_attempt(vm).get("runningTime")
        ran = (self._clock.now() - times.parse(str(began))).total_seconds() if began else 0.0
        return min(max(0.0, delay - ran), delay)

    def _drop(self, key: _Key) -> None:
        if (task := self._asked.pop(key).task) is not None:
            task.cancel()

    async def _ask(self, asked: _Asked) -> None:
        loop, pause = asyncio.get_running_loop(), asked.delay
        question = self._question(asked.wanted.probe, asked.wanted.address)
        while True:
            await asyncio.sleep(max(0.0, pause))
            due = loop.time() + asked.wanted.probe.period_seconds * self._second
            try:
                await self._ask_once(asked, question)
            except Exception:  # one guest's probe must not stop the others
                logger.exception("probing the guest of pod %s failed", asked.link.pod_uid)
                due = loop.time() + FAULT_SECONDS
            pause = due - loop.time()

    async def _ask_once(self, asked: _Asked, question: Question) -> None:
        before = asked.tally
        if not self._is_there(asked.link):
            asked.tally = interrupted(before)
            return
        outcome = await question.ask(asked.link)
        asked.tally = counted(before, asked.wanted.probe, outcome) if self._is_there(asked.link) else interrupted(before)
        if (asked.tally.verdict, asked.tally.message) != (before.verdict, before.message):
            self._changed(asked.link)

    def _is_there(self, link: Link) -> bool:
        return not link.gone and self._may_be_asked(link.status)


def _wanted(probe: Probe | None, address: str | None) -> tuple[_Wanted | None, str]:
    """Return the probe to run; or None, and why it cannot run (empty: not specified, or its address unknown)."""
    if probe is None:
        return None, ""
    if probe.handler not in probes.OVER_NETWORK:
        return _Wanted(probe, ""), ""
    if not address:
        return None, "" if address is None else NO_ADDRESS
    return (_Wanted(probe, address), "") if probe.port else (None, NO_PORT)
