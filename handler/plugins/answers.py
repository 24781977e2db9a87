"""Checks a plugin's answer and returns a result or raises a fault. Pure.

Everything that differs from docs/plugins.md is a fault. The callers check a result's members.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from apiserver.apis.meta.lines import one_line
from handler.plugins import protocol
from handler.plugins.faults import Failed, PluginRefused
from handler.plugins.protocol import COMMANDS, Command, Kind

MAX_WORDS: Final = 512
"""Characters of a plugin's error message."""
_ERROR_MEMBERS: Final = frozenset({"version", "code", "msg", "details"})
_LOG: Final = "see its standard error in virt-handler's log on this node"


@dataclass(frozen=True, slots=True)
class Output:
    """Output of a plugin that has ended; ``excess``: it wrote too much, and was killed."""

    status: int
    """Exit status; negative: the signal that ended it."""
    stdout: bytes
    stderr: str = ""
    """The end of it."""
    excess: bool = False


@dataclass(frozen=True, slots=True)
class Description:
    """A plugin's description of itself."""

    versions: tuple[str, ...]
    kinds: tuple[str, ...]
    live_migration: bool
    """To a node where the plugin adds the same."""
    commands: frozenset[Command] = frozenset(COMMANDS)
    """Besides VERSION. Without DEL, nothing outlives the pod; without CHECK, ADD is repeated instead."""


def title(plugin: str, command: Command) -> str:
    """Return the name of a plugin call in messages: ``plugin NAME (COMMAND)``."""
    return f"plugin {plugin} ({command})"


def result_of(plugin: str, command: Command, output: Output, members: frozenset[str] | None) -> Mapping[str, Any]:
    """Return the result in a plugin's output; empty if it printed nothing, which is valid for ``DEL`` and ``CHECK``.

    ``members`` are valid besides ``version``; None: any, for our own plugins. Raises PluginRefused if the request is impossible, else
    Failed.
    """
    who = title(plugin, command)
    if output.excess:
        raise Failed(f"{who} wrote more output than allowed and was killed; {_LOG}")
    if output.status:
        _raise_error(who, output)
    if not output.stdout.strip() and command in ("DEL", "CHECK"):
        return {}
    try:
        found = _parse(output.stdout)
    except ValueError as error:
        raise Failed(f"{who} did not write a JSON object: {error}; {_LOG}") from error
    if "code" in found or "msg" in found:
        raise Failed(f"{who} reported an error but exited with status 0: {_words(found)}")
    if found.get("version") != protocol.VERSION:
        raise Failed(f"{who} answered in version {_short(found.get('version'))} to a request in version {protocol.VERSION}")
    if members is not None and (unknown := sorted(found.keys() - members - {"version"})):
        raise Failed(f"{who} answered with {_short(unknown[0])!a}, which is not a field of a result")
    return found


def members_of(kind: Kind, command: Command) -> frozenset[str]:
    """Return the valid members besides ``version`` in a third-party plugin's result."""
    return protocol.MEMBERS_OF_VERSION if command == "VERSION" else protocol.MEMBERS[kind]


def describe(plugin: str, kind: Kind, found: Mapping[str, Any]) -> Description:
    """Parse a result of ``VERSION``. Raises Failed if invalid, or the plugin is of another kind, or supports no common version."""
    who = title(plugin, "VERSION")
    versions, kinds = (_texts(who, found, member) for member in ("supportedVersions", "kinds"))
    live = found.get("liveMigration", False)
    if not isinstance(live, bool):
        raise Failed(f"{who}: liveMigration must be true or false")
    if protocol.VERSION not in versions:
        raise Failed(f"{who} supports versions {', '.join(versions) or 'none'}; this virt-handler requires {protocol.VERSION}")
    if kind not in kinds:
        raise Failed(f"{who} is for {', '.join(kinds) or 'nothing'}, not for {kind}")
    asked = _texts(who, found, "commands") if "commands" in found else COMMANDS
    if "ADD" not in asked or set(asked) - set(COMMANDS):
        raise Failed(f"{who}: commands must contain ADD, and optionally CHECK and DEL")
    return Description(versions, kinds, live, frozenset(each for each in COMMANDS if each in asked))


def _texts(who: str, found: Mapping[str, Any], member: str) -> tuple[str, ...]:
    given = found.get(member)
    if not isinstance(given, list) or len(given) > 32 or not all(isinstance(each, str) and len(each) <= 32 for each in given):
        raise Failed(f"{who}: {member} must be a list of short strings")
    return tuple(one_line(each, 32) for each in given)


def _raise_error(who: str, output: Output) -> NoReturn:
    if output.status < 0:
        raise Failed(f"{who} was killed by signal {-output.status}; {_LOG}")
    try:
        found = _parse(output.stdout)
    except ValueError:
        raise Failed(f"{who} exited with status {output.status} and wrote no JSON error; {_LOG}") from None
    code, message = found.get("code"), found.get("msg")
    if type(code) is not int or not isinstance(message, str) or not found.keys() <= _ERROR_MEMBERS:
        raise Failed(f"{who} exited with status {output.status} and wrote no valid error: code must be a number and msg a string; {_LOG}")
    raise (PluginRefused if code in protocol.FINAL else Failed)(f"{who}: {_words(found)}")


def _words(found: Mapping[str, Any]) -> str:
    said = [one_line(str(found[each]), MAX_WORDS) for each in ("msg", "details") if found.get(each)]
    return f"{': '.join(said) or 'no message'} (code {_short(found.get('code'))})"


def _short(value: object) -> str:
    return one_line(str(value), 32)


def _parse(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text.decode(), parse_constant=_no_constant, object_pairs_hook=_object)
        json.dumps(found, ensure_ascii=False).encode()  # half of a surrogate pair is valid JSON, but not UTF-8
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(found, dict):
        raise ValueError("it is another type")  # noqa: TRY004 - as whatever else is wrong with it
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a field occurs twice")
    return result
