"""Calls this node's plugins by name: finds them, gets their version, runs them, checks answers."""

from __future__ import annotations

import json
import logging
import os
import stat
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from apiserver.apis.meta import objects
from apiserver.apis.meta.lines import one_line
from apiserver.apis.virt.spec import plugins as named
from handler.plugins import answers, protocol, running
from handler.plugins.answers import Description
from handler.plugins.faults import Failed, NotFound, TimedOut
from handler.plugins.protocol import Command, Kind
from handler.plugins.turns import NoTurn, Turns

logger = logging.getLogger(__name__)

AT_ONCE: Final = 4
"""Parallel calls of one command of one plugin: ``DEL`` and ``CHECK`` do not wait for ``ADD``."""
OURS_AT_ONCE: Final = 4
"""Of all our own plugins. Each takes 13 MiB of virt-handler's memory, and after a restart the calls for all pods come at once."""
PATIENCE_SECONDS: Final = 3 * protocol.SECONDS
"""How long a call waits for its turn: longer than the turns of eight namespaces with only hanging calls."""
NODE_NETNS: Final = "/proc/1/ns/net"
_ENVIRONMENT: Final = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
_PROGRAMS: Final = (b"#!", b"\x7fELF")
"""First bytes of programs. The shell would execute any other file line by line."""
_LOG_CHARACTERS: Final = 2048


@dataclass(frozen=True, slots=True)
class Own:
    """Command and environment of one of our own plugins."""

    command: tuple[str, ...]
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Program:
    command: tuple[str, ...]
    environment: Mapping[str, str]
    stamp: tuple[int, ...] = ()
    """Changes when the file is replaced."""
    is_ours: bool = False


class Plugins:
    """Calls this node's plugins: the administrator's allowed ones, and our own."""

    def __init__(
        self,
        directory: Path,
        allowed: Mapping[Kind, frozenset[str]],
        own: Mapping[tuple[Kind, str], Own] | None = None,
        *,
        seconds: float = protocol.SECONDS,
        patience: float | None = PATIENCE_SECONDS,
        node_netns: str = NODE_NETNS,
    ) -> None:
        """Only store the settings: plugins ``allowed`` in ``directory``, by kind, and our ``own``.

        ``seconds`` limits a call, and ``patience`` its wait for a turn.
        """
        self._node_netns = node_netns
        self._directory = directory
        self._allowed = allowed
        self._own = own or {}
        self._seconds = seconds
        self._patience = patience
        self._turns: defaultdict[tuple[Kind, str, Command], Turns] = defaultdict(lambda: Turns(AT_ONCE))
        self._turns_of_ours = Turns(OURS_AT_ONCE)
        self._described: dict[tuple[Kind, str], tuple[tuple[int, ...], Description]] = {}

    async def call(
        self, kind: Kind, name: str, command: Command, document: Mapping[str, Any], environment: Mapping[str, str] | None = None
    ) -> Mapping[str, Any]:
        """Call a plugin and return its result; empty, without a call, if it does not support the command. Raises Fault.

        ``document`` is the request without version, kind and name; ``environment``: further variables.
        """
        program = self._find(kind, name)
        if command not in (await self._describe(kind, name, program)).commands:
            return {}
        told = {"version": protocol.VERSION, "kind": kind, "plugin": name, **document}
        return await self._run(kind, name, command, program, told, environment or {})

    async def describe(self, kind: Kind, name: str) -> Description:
        """Return the plugin's description, cached until its file changes (our own plugins': for good). Raises Fault."""
        return await self._describe(kind, name, self._find(kind, name))

    async def _describe(self, kind: Kind, name: str, program: _Program) -> Description:
        cached = self._described.get((kind, name))
        if cached is not None and cached[0] == program.stamp:
            return cached[1]
        found = await self._run(kind, name, "VERSION", program, {"version": protocol.VERSION}, {})
        description = answers.describe(name, kind, found)
        self._described[kind, name] = (program.stamp, description)
        return description

    def _find(self, kind: Kind, name: str) -> _Program:
        if (own := self._own.get((kind, name))) is not None:
            return _Program(own.command, own.environment, is_ours=True)
        if not named.is_name(name) or name not in self._allowed.get(kind, ()):
            raise NotFound(
                f"plugin {one_line(name, named.MAX_NAME)} is not enabled for {kind} on this node (--plugin flags of virt-handler)"
            )
        path = self._directory / name
        try:
            found = path.stat()
            begins = _begin(path) if stat.S_ISREG(found.st_mode) else b""  # opening a pipe would block
        except OSError as error:
            raise NotFound(f"plugin {name} is not on this node: {path}: {error.strerror}") from error
        if not begins.startswith(_PROGRAMS) or not os.access(path, os.X_OK):
            raise NotFound(f"plugin {name} is not on this node: {path} is not an executable")
        return _Program((str(path),), {}, (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns))

    async def _run(
        self, kind: Kind, name: str, command: Command, program: _Program, document: Mapping[str, Any], environment: Mapping[str, str]
    ) -> Mapping[str, Any]:
        who = answers.title(name, command)
        variables = {protocol.COMMAND_VARIABLE: command, protocol.NODE_NETNS_VARIABLE: self._node_netns}
        given = {**_ENVIRONMENT, **program.environment, **variables, **environment}
        turns = self._turns_of_ours if program.is_ours else self._turns[kind, name, command]
        namespace = str(objects.dig(document, "machine", "namespace") or "")
        most = None if program.is_ours else protocol.MAX_DATA
        try:
            async with turns.turn(namespace, self._patience):
                output = await running.run(
                    program.command, f"{json.dumps(document)}\n".encode(), given, seconds=self._seconds, max_data=most
                )
        except NoTurn as error:
            raise TimedOut(f"{who} has too many unanswered calls; try again") from error
        except TimeoutError as error:
            raise TimedOut(f"{who} did not answer within {self._seconds:g} s and was killed") from error
        except OSError as error:
            raise Failed(f"{who} could not be started: {error}") from error
        if output.stderr.strip():
            logger.log(
                logging.WARNING if output.status else logging.INFO, "%s: %s", who, one_line(output.stderr.strip()[-_LOG_CHARACTERS:], 2048)
            )
        return answers.result_of(name, command, output, None if program.is_ours else answers.members_of(kind, command))


def _begin(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(4)
