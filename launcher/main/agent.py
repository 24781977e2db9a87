"""The guest agent: asked for what the status tells when it connects, and every half minute; for all it knows when somebody reads it.

Its answers are the guest's word, bounded by ``launcher.main.agent_answers``. One question is open at a time, each has a limit, and
nothing of the guest's life waits for any of them: while the guest is to be shut down none is asked, because that may be asked of the
agent, too.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final

from apiserver.apis.meta import times
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt import guestinfo
from launcher.domain.states import State
from launcher.hypervisor.port import AgentSilent, Hypervisor, HypervisorError, Observation, OperationInvalid, OperationTimeout
from launcher.main import agent_answers, applications
from launcher.main.refusal import RequestRefused
from launcher.protocol import messages

logger = logging.getLogger(__name__)

AGENT_SECONDS: Final = 30.0
"""Between two rounds of questions for the status, unless an agent connects or goes."""
PAUSE_SECONDS: Final = 1.0
"""The least between two rounds: a guest may open and close its channel as often as it likes."""
INFO_SECONDS: Final = 12.0
"""For all questions of one read; the last may take longer. virt-handler waits for twice as long."""
TURN_SECONDS: Final = 10.0
"""The longest that a read waits for the questions of another."""
APPLICATIONS_SECONDS: Final = 600.0
"""Between two runs of the guest's package manager."""


class Agent:
    """Asks the agent of a domain for as long as it is connected."""

    def __init__(
        self,
        hypervisor: Hypervisor,
        *,
        told: Callable[[Object], None],
        silent: Callable[[str], None],
        gone: Callable[[], None],
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        """Do nothing yet.

        Args:
            hypervisor: where the domain lives.
            told: called with what the agent told for the status, bounded.
            silent: called with the reason at each turn at which an agent is connected and does not answer.
            gone: called at each turn at which no agent is connected.
            stopping: tells whether the guest is to power off.
        """
        self._hypervisor = hypervisor
        self._told = told
        self._silent = silent
        self._gone = gone
        self._stopping = stopping
        self._domain: Observation | None = None
        self._changed = asyncio.Event()
        self._turn = asyncio.Lock()
        self._applications: tuple[float, list[Object] | str] | None = None
        """The last answer: the event loop's time of the question, in seconds, and the packages or the reason why there are none."""

    def take(self, domain: Observation | None) -> None:
        """Take in the domain as it is now."""
        if domain is not None and domain.agent_connected != (self._domain is not None and self._domain.agent_connected):
            self._changed.set()
            self._applications = None  # a guest that starts again may be another, and one that was changed starts its agent again
        self._domain = domain

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            try:
                async with asyncio.timeout(AGENT_SECONDS):
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._changed.clear()
            domain = self._domain
            if domain is None or not domain.agent_connected:
                self._gone()
            elif domain.state is State.RUNNING and not self._stopping():
                await self._look(domain.name)
            await asyncio.sleep(PAUSE_SECONDS)

    async def read(self, names: Mapping[str, str]) -> str:
        """Return all that the agent tells now, as JSON of :mod:`apiserver.apis.virt.guestinfo`; ``names``: of interfaces, by MAC address.

        Raises:
            RequestRefused: there is no agent to be asked, or it does not answer.
        """
        async with self._reading() as domain:
            info = await self._all(domain)
        info = {"time": times.to_rfc3339(datetime.now(UTC)), **guestinfo.bounded(agent_answers.named(info, names))}
        return json.dumps(guestinfo.fitted(info), ensure_ascii=False)

    async def ping(self) -> str:
        """Return an empty object, as JSON, once the agent has given a sign of life.

        Raises:
            RequestRefused: there is no agent to be asked, or it does not answer.
        """
        async with self._reading() as domain:
            await self._hypervisor.ask_agent(domain, "guest-ping")
        return "{}"

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[str]:
        """Yield the domain of an agent that may be asked, in the reader's turn; what goes wrong meanwhile becomes a refusal."""
        self._require_agent()
        try:
            async with asyncio.timeout(TURN_SECONDS):
                await self._turn.acquire()
        except TimeoutError as error:
            raise RequestRefused("Timeout", "the guest agent has not answered an earlier question") from error
        try:
            yield self._require_agent()
        except (AgentSilent, OperationTimeout) as error:
            raise RequestRefused("Timeout", str(error)) from error
        except OperationInvalid as error:
            raise RequestRefused("Conflict", str(error)) from error
        except HypervisorError as error:
            raise RequestRefused("Failed", str(error)) from error
        finally:
            self._turn.release()

    @property
    def is_ready(self) -> bool:
        """True if an agent is connected, and its guest runs and is to go on."""
        domain = self._domain
        return domain is not None and domain.agent_connected and domain.state is State.RUNNING and not self._stopping()

    async def do(self, command: str, arguments: Mapping[str, Any]) -> object:
        """Have the agent do something, in its turn among the questions.

        Raises:
            RequestRefused: there is no agent that could.
            HypervisorError: it does not answer, or refuses.
        """
        async with self._turn:
            return await self._hypervisor.ask_agent(self._require_agent(), command, arguments)

    def _require_agent(self) -> str:
        domain = self._domain
        if domain is None or not domain.active:
            raise RequestRefused("Conflict", "the guest does not run")
        if self._stopping():
            raise RequestRefused("Conflict", "the guest is being shut down")
        if not domain.agent_connected:
            raise RequestRefused(
                "Conflict", "no guest agent is connected: the package qemu-guest-agent has to be installed and to run in the guest"
            )
        if domain.state is not State.RUNNING:
            raise RequestRefused("Conflict", f"the guest is {domain.state.name.lower()}, and its agent with it")
        return domain.name

    async def _look(self, name: str) -> None:
        try:
            async with self._turn:
                self._told(await self._answers(name, agent_answers.OF_STATUS))
        except OperationInvalid as error:
            logger.debug("the guest agent did not answer", extra={"error": str(error)})
            self._silent(str(error))
        except HypervisorError as error:  # not the guest's fault
            logger.debug("the guest agent could not be asked", extra={"error": str(error)})

    async def _all(self, name: str) -> Object:
        info = await self._answers(name, tuple(agent_answers.QUESTIONS))
        known = await self._listed(name, (info.get("agent") or {}).get("commands") or ())
        if isinstance(known, str):
            return {**info, "unavailable": [*info.get("unavailable", ()), {"field": "applications", "reason": known}]}
        cut = ["applications"] if guestinfo.told_more("applications", known) else []
        return {**info, "applications": known, "truncated": [*info.get("truncated", ()), *cut]}

    async def _answers(self, name: str, fields: tuple[str, ...]) -> Object:
        """Ask for these fields; return those that the agent told, and why it did not tell the others.

        Raises:
            HypervisorError: it does not answer the first question.
        """
        found: Object = {}
        problems: dict[str, str] = {}
        truncated: list[str] = []
        silence = ""
        until = asyncio.get_running_loop().time() + INFO_SECONDS
        for field in fields:
            command, _ = agent_answers.QUESTIONS[field]
            if problem := silence or self._not_asked(command, found.get("agent"), until):
                problems[field] = problem
                continue
            try:
                found[field], more = agent_answers.field_of(field, await self._hypervisor.ask_agent(name, command))
            except OperationInvalid as error:
                if field == fields[0] and isinstance(error, AgentSilent):
                    raise
                silence = str(error) if isinstance(error, AgentSilent) else ""
                problems[field] = str(error)
            else:
                truncated += [field] if more else []
        return {
            **{field: value for field, value in found.items() if value is not None},
            "unavailable": [{"field": field, "reason": reason} for field, reason in problems.items()],
            "truncated": truncated,
        }

    def _not_asked(self, command: str, agent: Any, until: float) -> str:  # noqa: ANN401 - any JSON value
        """Return why a question is not asked; empty if it is."""
        if self._stopping():
            return "the guest is being shut down"
        if asyncio.get_running_loop().time() >= until:
            return "the guest agent was too slow to be asked for it"
        commands = (agent or {}).get("commands")
        if commands and command not in commands:
            return f"the guest agent has no {command}, or its configuration forbids it"
        return ""

    async def _listed(self, name: str, commands: tuple[str, ...]) -> list[Object] | str:
        """Return the guest's packages, or why there is no list."""
        now = asyncio.get_running_loop().time()
        if self._applications is not None and now - self._applications[0] < APPLICATIONS_SECONDS:
            return self._applications[1]
        if missing := [each for each in applications.NEEDED if each not in commands]:
            return f"the guest agent has no {missing[0]}, or its configuration forbids it"

        async def ask(command: str, arguments: Mapping[str, Any]) -> object:
            return await self._hypervisor.ask_agent(name, command, arguments)

        known: list[Object] | str
        try:
            known = await applications.listed(ask)
        except (applications.NotListed, OperationInvalid, OperationTimeout) as error:
            known = str(error)
        self._applications = (now, known)
        return known


def status_of(told: Object) -> messages.AgentStatus:
    """Return the status of an agent that told this."""
    system = told.get("os") or {}
    return messages.AgentStatus(
        connected=True,
        version=(told.get("agent") or {}).get("version") or "",
        hostname=told.get("hostname") or "",
        os_id=system.get("id") or "",
        os_name=system.get("prettyName") or system.get("name") or "",
        os_version=system.get("versionId") or system.get("version") or "",
        kernel_release=system.get("kernelRelease") or "",
        timezone=(told.get("timezone") or {}).get("name") or "",
    )


def interfaces_of(told: Object, names: Mapping[str, str]) -> tuple[messages.InterfaceStatus, ...]:
    """Return the guest's interfaces, with the name in the specification for each whose MAC address stands there."""
    return tuple(
        messages.InterfaceStatus(
            names.get(each.get("mac", ""), ""), each.get("mac", ""), each.get("device", ""), tuple(each.get("ipAddresses") or ())
        )
        for each in told.get("interfaces") or ()
    )


def names_of(machine: messages.Machine | None) -> Mapping[str, str]:
    """Return the names of a machine's interfaces by their MAC addresses."""
    return {interface.mac.lower(): interface.name for interface in machine.interfaces} if machine else {}
