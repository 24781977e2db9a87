"""The words on which virt-handler and plugins agree: commands, versions, variables, codes of errors. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

VERSION: Final = "1.0.0"
"""Of the interface that this virt-handler speaks. Another first number: nothing of the other is understood."""

Command = Literal["ADD", "DEL", "CHECK", "VERSION"]
Kind = Literal["network", "storage"]

MEMBERS: Final[Mapping[Kind, frozenset[str]]] = {"network": frozenset({"tap", "mac", "addresses"}), "storage": frozenset({"disk"})}
"""Members that a result of ADD, CHECK or DEL may have beside ``version``."""
MEMBERS_OF_VERSION: Final = frozenset({"supportedVersions", "kinds", "liveMigration", "commands"})
COMMANDS: Final[tuple[Command, ...]] = ("ADD", "CHECK", "DEL")
"""Commands that a plugin is given, unless it says of itself that it needs fewer."""

COMMAND_VARIABLE: Final = "KUBEVIRT_COMMAND"
NODE_NETNS_VARIABLE: Final = "KUBEVIRT_NODE_NETNS"
"""Path of the node's own network namespace."""
NETNS_VARIABLE: Final = "KUBEVIRT_NETNS"
"""Path of the pod's network namespace; of plugins for networks. Absent where the pod is gone."""

# Codes of errors, which mean what they mean in CNI; from 100 on they are the plugin's own.
INCOMPATIBLE_VERSION: Final = 1
UNSUPPORTED_FIELD: Final = 2
POD_UNKNOWN: Final = 3
INPUT_OUTPUT: Final = 5
NOT_DECODED: Final = 6
INVALID_CONFIGURATION: Final = 7

FINAL: Final = frozenset({UNSUPPORTED_FIELD, INVALID_CONFIGURATION})
"""Codes of what cannot be, now or ever: the machine's start fails. Everything else is tried again."""

MAX_OUTPUT: Final = 64 << 10
"""Bytes of a plugin's standard output."""
MAX_ERRORS: Final = 256 << 10
"""Bytes of its standard error; the last of them go to virt-handler's log."""
SECONDS: Final = 20.0
"""Seconds that one call may take."""
MAX_DATA: Final = 128 << 20
"""Bytes of memory of its own (RLIMIT_DATA) that each process of a third party's plugin may have: it runs within virt-handler's limit."""
