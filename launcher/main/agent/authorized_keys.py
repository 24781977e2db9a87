"""Public keys of the guest's users, set by its agent: ``spec.accessCredentials`` with ``qemuGuestAgent``.

They are set when an agent connects, and when the kubelet updates a mounted Secret. A user gets exactly the keys of the Secrets that name
it. No message contains a key.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from apiserver.apis.meta.lines import one_line
from apiserver.apis.virt.places import layout
from launcher.domain import cloud_init
from launcher.domain.values import InvalidSpecification
from launcher.hypervisor.port import AgentRefused, HypervisorError
from launcher.main.agent.agent import Agent
from launcher.main.decisions.refusal import RequestRefused
from launcher.main.decisions.times import TIMES, Times
from launcher.main.disks import made_disks, mounted
from launcher.protocol import messages

logger = logging.getLogger(__name__)

MAX_PROBLEM: Final = 256
"""Characters of a failure's reason."""
NOISE: Final = ": Success"
"""Ends the agent's text for an unknown user, because its system call reports no error."""
COMMAND: Final = "guest-ssh-add-authorized-keys"
"""https://www.qemu.org/docs/master/interop/qemu-ga-ref.html; since QEMU 5.2."""

Keys = Mapping[str, tuple[str, ...]]
"""By user name."""


def positions_of(machine: messages.Machine | None) -> Mapping[str, tuple[int, ...]]:
    """Return by user the positions in ``spec.accessCredentials`` of keys for the guest agent."""
    found: dict[str, tuple[int, ...]] = {}
    for position, credential in enumerate(machine.access_credentials if machine is not None else ()):
        for user in credential.users if credential.method == "qemuGuestAgent" else ():
            found[user] = (*found.get(user, ()), position)
    return found


@dataclass(frozen=True, slots=True)
class KeysState:
    """State of the running guest's keys."""

    versions: Mapping[int, str] | None = None
    """Versions of the Secrets when the guest got their keys, by position."""
    retry: float = 0.0
    """Earliest time of a retry, in the event loop's seconds."""


def is_due(state: KeysState, versions: Mapping[int, str], now: float) -> bool:
    """Return whether to set keys: there are Secrets, the guest has other ``versions`` of them, and no retry delay is running."""
    return bool(versions) and versions != state.versions and now >= state.retry


class AuthorizedKeys:
    """Gives the guest's users their keys."""

    def __init__(
        self,
        agent: Agent,
        *,
        machine: Callable[[], messages.Machine | None],
        reported: Callable[[messages.AuthorizedKeysStatus], None],
        times: Times = TIMES,
    ) -> None:
        """``reported`` gets the result of each attempt."""
        self._times = times
        self._agent = agent
        self._machine = machine
        self._reported = reported
        self._state = KeysState()

    async def run(self) -> None:
        """Keep the guest users' keys equal to the Secrets until cancelled."""
        while True:
            await self._look(positions_of(self._machine()))
            await asyncio.sleep(self._times.keys_look)

    async def _look(self, positions: Mapping[str, tuple[int, ...]]) -> None:
        if not self._agent.is_ready:
            self._state = KeysState()  # the next guest may be another system
            return
        versions = {each: mounted.version(_directory(each)) for of_user in positions.values() for each in of_user}
        now = asyncio.get_running_loop().time()
        if not is_due(self._state, versions, now):
            return
        problem = await self._bring(positions)
        if problem:
            logger.warning("cannot set public keys in the guest", extra={"error": problem})
            self._state = dataclasses.replace(self._state, retry=now + self._times.keys_retry)
            self._reported(messages.AuthorizedKeysStatus("failed", problem))
        else:
            self._state = dataclasses.replace(self._state, versions=versions)
            self._reported(messages.AuthorizedKeysStatus("synchronized"))

    async def _bring(self, positions: Mapping[str, tuple[int, ...]]) -> str:
        try:
            wanted = await asyncio.to_thread(_keys, positions)
        except (made_disks.SourceUnusable, InvalidSpecification) as error:
            return one_line(str(error), MAX_PROBLEM)
        having, problems = [], []
        for user, keys in wanted.items():
            try:
                await self._agent.do(COMMAND, {"username": user, "keys": list(keys), "reset": True})
            except (HypervisorError, RequestRefused) as error:
                problems.append(f"user {user}: {_without(keys, str(error)).removesuffix(NOISE)}")
                if not isinstance(error, AgentRefused):
                    break  # it would not answer for others
            else:
                having.append(user)
        return _summary(problems, having) if problems else ""


def _summary(problems: list[str], having: list[str]) -> str:
    told = one_line(f"; set for {', '.join(having)}", MAX_PROBLEM // 4) if having else ""
    return one_line("; ".join(problems), MAX_PROBLEM - len(told)) + told


def _keys(positions: Mapping[str, tuple[int, ...]]) -> Keys:
    secrets = {each: made_disks.public_keys(each) for each in {each for of_user in positions.values() for each in of_user}}
    path = "spec.accessCredentials"
    return {user: cloud_init.counted([key for each in of_user for key in secrets[each]], path) for user, of_user in positions.items()}


def _without(keys: tuple[str, ...], said: str) -> str:
    """Return the agent's message, or a fixed one if it contains part of a key."""
    parts = {part for key in keys for part in key.split() if len(part) > 2}
    return "the guest agent rejected its keys" if any(part in said for part in parts) else said


def _directory(position: int) -> Path:
    return Path(layout.ACCESS_CREDENTIALS_DIRECTORY, str(position))
