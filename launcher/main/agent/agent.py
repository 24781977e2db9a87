"""Questions to the guest agent: every half minute for the status, and on demand.

``decisions.agent_answers`` limits its untrusted answers. One question is open at a time, and no other work waits for it. None is sent
during the guest's shutdown, which may use the agent.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from apiserver.apis.meta import times
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.spec import guestinfo
from launcher.hypervisor.port import (
    AGENT_SECONDS,
    AgentUnresponsive,
    Hypervisor,
    HypervisorError,
    Observation,
    OperationInvalid,
    OperationTimeout,
)
from launcher.main.agent import applications
from launcher.main.decisions import agent_answers, agent_questions
from launcher.main.decisions.agent_questions import Round, Turn
from launcher.main.decisions.refusal import RequestRefused
from launcher.main.decisions.times import TIMES, Times

logger = logging.getLogger(__name__)


class Agent:
    """Sends questions to a domain's guest agent while it is connected."""

    def __init__(
        self,
        hypervisor: Hypervisor,
        *,
        answered: Callable[[Object], None],
        unresponsive: Callable[[str], None],
        gone: Callable[[], None],
        stopping: Callable[[], bool] = lambda: False,
        frozen: Callable[[], bool] = lambda: False,
        times: Times = TIMES,
    ) -> None:
        """Store the settings.

        ``answered`` gets the limited answers for the status. In each turn, ``unresponsive`` gets the reason why a connected agent does not
        answer, or ``gone`` is called without one. ``stopping`` returns whether the guest shuts down, ``frozen`` whether its file systems
        are frozen.
        """
        self._times = times
        self._hypervisor = hypervisor
        self._answered = answered
        self._unresponsive = unresponsive
        self._gone = gone
        self._stopping = stopping
        self._frozen = frozen
        self._domain: Observation | None = None
        self._changed = asyncio.Event()
        self._turn = asyncio.Lock()
        self._applications: tuple[float, list[Object] | str] | None = None
        """Time of the last question in the event loop's seconds, and the packages or why there are none."""

    def take(self, domain: Observation | None) -> None:
        """Record the domain's state. A change of the agent's connection starts questions soon."""
        if domain is not None and domain.agent_connected != (self._domain is not None and self._domain.agent_connected):
            self._changed.set()
            self._applications = None  # a restarted guest may differ, and package changes restart the agent
        self._domain = domain

    async def run(self) -> None:
        """Send questions for the status, on connection and every half minute, until cancelled."""
        while True:
            try:
                async with asyncio.timeout(self._times.agent_round):
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._changed.clear()
            match agent_questions.turn(self._domain, stopping=self._stopping(), frozen=self._frozen()):
                case Turn.MISS:
                    self._gone()
                case Turn.ASK if self._domain is not None:
                    await self._look(self._domain.name)
            await asyncio.sleep(self._times.agent_pause)

    async def read(self, names: Mapping[str, str]) -> str:
        """Return all answers as JSON of :mod:`apiserver.apis.virt.spec.guestinfo`; ``names``: interfaces' names by MAC address.

        Raises RequestRefused.
        """
        async with self._reading() as domain:
            info = await self._all(domain)
        info = {"time": times.to_rfc3339(datetime.now(UTC)), **guestinfo.bounded(agent_answers.named(info, names))}
        return json.dumps(guestinfo.fitted(info), ensure_ascii=False)

    async def ping(self) -> str:
        """Ping the guest agent, even with frozen file systems; return an empty JSON object. Raises RequestRefused."""
        async with self._reading(anyway=self._frozen()) as domain:
            await self._hypervisor.ask_agent(domain, "guest-ping")
        return "{}"

    @asynccontextmanager
    async def _reading(self, *, anyway: bool = False) -> AsyncIterator[str]:
        """Yield the domain's name in this reader's turn with the guest agent, and convert the block's errors to RequestRefused.

        ``anyway``: also while the guest shuts down, or its file systems are frozen.
        """
        self._require_agent(anyway=anyway)
        try:
            async with asyncio.timeout(self._times.agent_turn):
                await self._turn.acquire()
        except TimeoutError as error:
            raise RequestRefused("Timeout", "the guest agent has not answered an earlier command") from error
        try:
            yield self._require_agent(anyway=anyway)
        except (AgentUnresponsive, OperationTimeout) as error:
            raise RequestRefused("Timeout", str(error)) from error
        except OperationInvalid as error:
            raise RequestRefused("Conflict", str(error)) from error
        except HypervisorError as error:
            raise RequestRefused("Failed", str(error)) from error
        finally:
            self._turn.release()

    @property
    def is_ready(self) -> bool:
        """Return whether an agent is connected, and its guest runs, is not shutting down, and has no frozen file systems."""
        return not agent_questions.why_unavailable(self._domain, stopping=self._stopping(), frozen=self._frozen())

    async def do(self, command: str, arguments: Mapping[str, Any], *, seconds: int = AGENT_SECONDS, anyway: bool = False) -> object:
        """Return the agent's answer to a qemu-ga command, sent in turn with the questions.

        It has ``seconds`` to answer. ``anyway``: send it also while the guest shuts down, or its file systems are frozen.

        Raises:
            RequestRefused: no agent is available.
            HypervisorError: it does not answer, or refuses.
        """
        async with self._turn:
            return await self._hypervisor.ask_agent(self._require_agent(anyway=anyway), command, arguments, seconds)

    def _require_agent(self, *, anyway: bool = False) -> str:
        stopping, frozen = (not anyway and each() for each in (self._stopping, self._frozen))
        reason = agent_questions.why_unavailable(self._domain, stopping=stopping, frozen=frozen)
        if reason or self._domain is None:
            raise RequestRefused("Conflict", reason)
        return self._domain.name

    async def _look(self, name: str) -> None:
        try:
            async with self._turn:
                self._answered(await self._answers(name, agent_answers.OF_STATUS))
        except OperationInvalid as error:
            logger.debug("the guest agent did not answer", extra={"error": str(error)})
            self._unresponsive(str(error))
        except HypervisorError as error:
            logger.debug("cannot send a command to the guest agent", extra={"error": str(error)})

    async def _all(self, name: str) -> Object:
        info = await self._answers(name, tuple(agent_answers.QUESTIONS))
        known = await self._listed(name, (info.get("agent") or {}).get("commands") or ())
        if isinstance(known, str):
            return {**info, "unavailable": [*info.get("unavailable", ()), {"field": "applications", "reason": known}]}
        cut = ["applications"] if guestinfo.has_more("applications", known) else []
        return {**info, "applications": known, "truncated": [*info.get("truncated", ()), *cut]}

    async def _answers(self, name: str, fields: tuple[str, ...]) -> Object:
        """Ask the guest agent for these fields; return the answers, and why others are missing.

        Raises HypervisorError if libvirt fails, or the agent does not answer the first question.
        """
        asked = Round()
        until = asyncio.get_running_loop().time() + self._times.agent_limit
        for field in fields:
            command, _ = agent_answers.QUESTIONS[field]
            late = asyncio.get_running_loop().time() >= until
            if reason := agent_questions.why_not_asked(asked, command, stopping=self._stopping(), late=late):
                asked = agent_questions.passed_over(asked, field, reason)
                continue
            try:
                answer = await self._hypervisor.ask_agent(name, command)
            except OperationInvalid as error:
                if field == fields[0] and isinstance(error, AgentUnresponsive):
                    raise
                asked = agent_questions.refused(asked, field, error)
            else:
                asked = agent_questions.answered(asked, field, answer)
        return agent_questions.answers(asked)

    async def _listed(self, name: str, commands: tuple[str, ...]) -> list[Object] | str:
        """Return the guest's packages, or a message why there is no list; cached for ``Times.packages``."""
        now = asyncio.get_running_loop().time()
        if self._applications is not None and now - self._applications[0] < self._times.packages:
            return self._applications[1]
        if missing := [each for each in applications.NEEDED if each not in commands]:
            return f"the guest agent does not support {missing[0]}, or its configuration blocks it"

        async def ask(command: str, arguments: Mapping[str, Any]) -> object:
            return await self._hypervisor.ask_agent(name, command, arguments)

        known: list[Object] | str
        try:
            known = await applications.listed(ask, self._times)
        except (applications.NotListed, OperationInvalid, OperationTimeout) as error:
            known = str(error)
        self._applications = (now, known)
        return known
