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

from apiserver.apis.meta.objects import name_of
from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from apiserver.kubectl import access, flags, verbs
from apiserver.kubectl.access import Selection
from apiserver.kubectl.messages import Failure

NO_FILES: Final = ":4"
"""cobra's directive: do not offer file names."""
MAX_NAMES: Final = 500
SECONDS: Final = 5.0
WITHOUT_NAMES: Final = frozenset({"create", "version", "outdated", "nodes", "fence", "unfence", "move-etcd"})
_VALUES: Final = {"-n": "namespace", "--namespace": "namespace", "--kubeconfig": "kubeconfig", "--context": "context", "-s": "server"}


def words(given: Sequence[str], machines: Sequence[str], options: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the commands, flags or names that complete the last word of ``given``."""
    *before, last = given or [""]
    command = command_of(before)
    if command is None:
        return sorted(each for each in options if each.startswith(last))
    if last.startswith("-"):
        return sorted(each for each in options.get(command, ()) if each.startswith(last))
    return sorted(each for each in machines if each.startswith(last) and each not in before)


def command_of(before: Sequence[str]) -> str | None:
    """Return the first word that is neither a flag nor its value, or None."""
    skip = False
    for word in before:
        if not skip and not word.startswith("-"):
            return word
        skip = word in flags.WITH_VALUE
    return None


def needs_names(given: Sequence[str]) -> bool:
    """Return whether the last word may be a machine's name."""
    command = command_of(given[:-1])
    return command is not None and command not in WITHOUT_NAMES and not given[-1].startswith("-")


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


async def names(selection: Selection) -> list[str]:
    """Return the names of the namespace's machines; none after a failure."""
    try:
        async with asyncio.timeout(SECONDS):
            way = await access.load(selection)
            path = VIRTUAL_MACHINES.path(way.namespace)
            listed = await verbs.request(way, "GET", path, "list virtual machines", params={"limit": str(MAX_NAMES)})
    except (Failure, TimeoutError, OSError):
        return []
    return [name_of(each) for each in listed.get("items") or ()]


def main(arguments: list[str] | None = None) -> int:
    """Print the words that complete the command line."""
    given = sys.argv[1:] if arguments is None else arguments
    machines = asyncio.run(names(selection_of(given))) if given and needs_names(given) else []
    for word in words(given, machines, flags.options()):
        print(word)
    print(NO_FILES)
    return 0


if __name__ == "__main__":
    sys.exit(main())
