"""The guest's packages, listed by its own package manager.

The two fixed commands only read, and run at most every ten minutes per connection of the agent.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Final

from apiserver.apis.meta.objects import Object
from launcher.hypervisor.port import AgentRefused
from launcher.main.agent import processes
from launcher.main.agent.processes import Ask
from launcher.main.decisions import agent_answers
from launcher.main.decisions.times import TIMES, Times

COMMANDS: Final[Mapping[str, tuple[str, ...]]] = {
    "dpkg-query": ("--show", "--showformat=${Package}\\t${Version}\\n"),
    "rpm": ("--query", "--all", "--queryformat", "%{NAME}\\t%{VERSION}-%{RELEASE}\\n"),
}
MAX_TEXT: Final = 1 << 20
NEEDED: Final = ("guest-exec", "guest-exec-status")


class NotListed(Exception):
    """The list is not available; the text says why."""


async def listed(ask: Ask, times: Times = TIMES) -> list[Object]:
    """Return name and version of the guest's packages, at most ``agent_answers.MAX_LINES``.

    Raises:
        NotListed: the agent cannot run a known package manager, or that failed or took too long.
        HypervisorError: the agent or libvirt failed.
    """
    reasons = []
    for path, arguments in COMMANDS.items():
        try:
            begun = await ask("guest-exec", {"path": path, "arg": list(arguments), "env": ["LC_ALL=C"], "capture-output": True})
        except AgentRefused as refused:
            reasons.append(str(refused))
            continue
        return agent_answers.packages(await _output(ask, path, agent_answers.members(begun).get("pid"), times))
    raise NotListed("; ".join(reasons))


async def _output(ask: Ask, path: str, pid: object, times: Times) -> str:
    if type(pid) is not int:
        raise NotListed(f"{path} in the guest: the agent returned no process ID")
    found = await processes.report(ask, pid, times.packages_limit, times.packages_look)
    if found is None:
        raise NotListed(f"{path} in the guest has not ended within {times.packages_limit:.0f} s")
    if found.get("exitcode") != 0:
        raise NotListed(f"{path} in the guest failed")
    try:
        return base64.b64decode(str(found.get("out-data") or "")[:MAX_TEXT], validate=False).decode(errors="replace")
    except ValueError as error:  # binascii.Error, or non-ASCII text
        raise NotListed(f"{path} in the guest wrote output that the agent could not return") from error
