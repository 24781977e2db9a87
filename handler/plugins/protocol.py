"""Constants shared by virt-handler and plugins: commands, versions, variables, error codes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

VERSION: Final = "1.0.0"
"""This virt-handler's version of the interface. Major versions are incompatible."""

Command = Literal["ADD", "DEL", "CHECK", "VERSION"]
Kind = Literal["network", "storage"]

MEMBERS: Final[Mapping[Kind, frozenset[str]]] = {"network": frozenset({"tap", "mac", "addresses"}), "storage": frozenset({"disk"})}
"""Valid members besides ``version`` in a result of ADD, CHECK or DEL."""
MEMBERS_OF_VERSION: Final = frozenset({"supportedVersions", "kinds", "liveMigration", "commands"})
COMMANDS: Final[tuple[Command, ...]] = ("ADD", "CHECK", "DEL")
"""Commands that a plugin gets, unless it describes fewer."""

COMMAND_VARIABLE: Final = "KUBEVIRT_COMMAND"
NODE_NETNS_VARIABLE: Final = "KUBEVIRT_NODE_NETNS"
NETNS_VARIABLE: Final = "KUBEVIRT_NETNS"
"""For network plugins; absent if the pod is gone."""

# The meanings are CNI's; from 100 on they are the plugin's own.
INCOMPATIBLE_VERSION: Final = 1
UNSUPPORTED_FIELD: Final = 2
POD_UNKNOWN: Final = 3
INPUT_OUTPUT: Final = 5
NOT_DECODED: Final = 6
INVALID_CONFIGURATION: Final = 7

FINAL: Final = frozenset({UNSUPPORTED_FIELD, INVALID_CONFIGURATION})
"""Permanent failures: the machine's start fails."""

MAX_OUTPUT: Final = 64 << 10
MAX_ERRORS: Final = 256 << 10
"""virt-handler logs the last part."""
SECONDS: Final = 20.0
"""Deadline of a call."""
MAX_DATA: Final = 128 << 20
"""RLIMIT_DATA of each process of a third-party plugin, within virt-handler's own limit."""
