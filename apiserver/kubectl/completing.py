"""``kubectl_complete-virt``: completes command lines for kubectl in every shell.

It gets the words after ``kubectl virt``; the last one, perhaps empty, is to be completed. It prints a word per line,
and a directive.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from apiserver.apis.core.resources import NAMESPACES, NODES, PERSISTENT_VOLUME_CLAIMS
from apiserver.apis.meta.objects import name_of
from apiserver.apis.meta.resources import Resource
from apiserver.apis.virt.places.resources import REPLICA_SETS, VIRTUAL_MACHINES
from apiserver.kubectl import access, flags, rollout, verbs
from apiserver.kubectl.access import Selection
from apiserver.kubectl.messages import Failure

NO_FILES: Final = ":4"
"""cobra's directive: do not offer file names."""
MAX_NAMES: Final = 500
SECONDS: Final = 5.0
WITHOUT_NAMES: Final = frozenset({"create", "version", "outdated", "nodes", "fence", "unfence", "move-etcd"})
_VALUES: Final = {"-n": "namespace", "--namespace": "namespace", "--kubeconfig": "kubeconfig", "--context": "context", "-s": "server"}
_NAMED: Final = {"-n": NAMESPACES, "--namespace": NAMESPACES, "--claim": PERSISTENT_VOLUME_CLAIMS, "--node": NODES, "--to": NODES}
"""Kinds of the objects that flags name."""


def words(given: Sequence[str], names: Sequence[str], options: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the commands, actions, flags or names that complete the last word of ``given``. ``options``: flags of each command."""
    *before, last = given or [""]
    command = command_of(before)
    if before and before[-1] in _NAMED:
        return sorted(each for each in names if each.startswith(last))
    if last.startswith("-") and command is not None:
        return sorted(each for each in options.get(command, ()) if each.startswith(last))
    if command is None or command == rollout.COMMAND:
        start = f"{command} " if command else ""
        found = (each.removeprefix(start) for each in options if each.startswith(start) and each != command)
        return sorted(each for each in found if each.startswith(last) and " " not in each)
    return sorted(each for each in names if each.startswith(last) and each not in before)


def command_of(before: Sequence[str]) -> str | None:
    """Return the first word that is neither a flag nor its value, or None; for ``rollout`` with the second, as one text."""
    skip, found = False, []
    for word in before:
        if not skip and not word.startswith("-"):
            found.append(word)
        skip = word in flags.WITH_VALUE
    return " ".join(found[: 2 if found[0] == rollout.COMMAND else 1]) if found else None


def kind_of_names(given: Sequence[str]) -> Resource | None:
    """Return the kind of objects that the last word of ``given``, which must not be empty, may name, or None."""
    command = command_of(given[:-1])
    if given[:-1] and given[-2] in _NAMED:
        return _NAMED[given[-2]]
    if command is None or command in {*WITHOUT_NAMES, rollout.COMMAND} or given[-1].startswith("-"):
        return None
    return REPLICA_SETS if command.startswith(rollout.COMMAND) else VIRTUAL_MACHINES


def selection_of(given: Sequence[str]) -> Selection:
    """Return what flags among the words select: kubeconfig, context, server, namespace; empty if not given."""
    found: dict[str, Any] = {}
    for word, following in itertools.pairwise(given):
        if word in _VALUES:
            found[_VALUES[word]] = following
    for word in given:
        flag, equals, value = word.partition("=")
        if equals and flag in _VALUES:
            found[_VALUES[flag]] = value
    return Selection(**found)


async def names(selection: Selection, kind: Resource) -> list[str]:
    """Return names of the kind's objects, in the namespace if it has one, at most ``MAX_NAMES``; none after a failure."""
    try:
        async with asyncio.timeout(SECONDS):
            way = await access.load(selection)
            listed = await verbs.request(way, "GET", kind.path(way.namespace), "list names", params={"limit": str(MAX_NAMES)})
    except (Failure, TimeoutError, OSError):
        return []
    return [name_of(each) for each in listed.get("items") or ()]


def main(arguments: list[str] | None = None) -> int:
    """Print the words that complete the command line."""
    given = sys.argv[1:] if arguments is None else arguments
    kind = kind_of_names(given) if given else None
    found = asyncio.run(names(selection_of(given), kind)) if kind is not None else []
    for word in words(given, found, flags.options()):
        print(word)
    print(NO_FILES)
    return 0


if __name__ == "__main__":
    sys.exit(main())
