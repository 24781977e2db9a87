"""Valid values of attributes and texts. A :data:`Rule` returns what is wrong with a value, or ""."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from apiserver.apis.meta import names
from apiserver.apis.virt.places import forms, network

Rule = Callable[[str], str]

_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]{0,18})")
_ADDRESS: Final = re.compile(r"0x[0-9a-fA-F]{1,2}|[0-9]{1,2}")
_WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_NAMED: Final = re.compile(r"@([a-z]+):([^@]*)@")

UNITS: Final[Mapping[str, int]] = {
    "b": 1,
    "bytes": 1,
    **{
        spelling: base**power
        for power, letter in enumerate("KMGTPE", start=1)
        for spelling, base in ((letter, 1024), (f"{letter}iB", 1024), (f"{letter}B", 1000))
    },
}
"""In bytes: ``KB`` is 1000, ``K`` and ``KiB`` are 1024, in either case (``virScaleInteger``)."""
KIB: Final = 1024


def unit(value: str) -> str:
    """Return why a text is not a unit of libvirt, or ""."""
    return "" if _factor(value) else f"must be one of {', '.join(UNITS)}"


def _factor(value: str) -> int:
    return next((factor for name, factor in UNITS.items() if name.lower() == value.lower()), 0)


def in_bytes(number: str, unit: str) -> int:
    """Return memory in bytes, rounded up to KiB. ``unit``: one of :data:`UNITS`; empty: KiB."""
    amount = int(number) * (_factor(unit) if unit else KIB)
    return -(-amount // KIB) * KIB


@dataclass(frozen=True, slots=True)
class Words:
    """Accepts only these words."""

    allowed: tuple[str, ...]

    def __call__(self, value: str) -> str:
        """Return why a text is not one of the words, or ""."""
        if value in self.allowed:
            return ""
        return f"must be {self.allowed[0]}" if len(self.allowed) == 1 else f"must be one of {', '.join(self.allowed)}"


def words(*allowed: str) -> Rule:
    """Return a rule that a text is one of these words."""
    return Words(allowed)


ON_OFF: Final = words("on", "off")
YES_NO: Final = words("yes", "no")


@dataclass(frozen=True, slots=True)
class Number:
    """Accepts integers in a form that libvirt reads alike: decimal, no blanks, no leading zeros."""

    least: int
    most: int

    def __call__(self, value: str) -> str:
        """Return why a text is not a number in the range, or ""."""
        if _NUMBER.fullmatch(value) and self.least <= int(value) <= self.most:
            return ""
        return f"must be a decimal number from {self.least} to {self.most}"


def number(least: int, most: int) -> Rule:
    """Return a rule for integers in an inclusive range."""
    return Number(least, most)


def address(value: str) -> str:
    """Return why a text is not a number of one or two digits, such as a PCI bus (``0x0a``, ``10``), or ""."""
    return "" if _ADDRESS.fullmatch(value) else "must be a number such as 0x0a or 10"


def word(value: str) -> str:
    """Return why a text is not a word of at most 64 letters, digits and ``_.-``, or ""."""
    return "" if _WORD.fullmatch(value) else "must be a word of at most 64 letters, digits and _.-"


def matching(pattern: str, problem: str) -> Rule:
    """Return a rule for full matches of a regular expression; its error is ``problem``."""
    compiled = re.compile(pattern)

    def rule(value: str) -> str:
        return "" if compiled.fullmatch(value) else problem

    return rule


def line(most: int) -> Rule:
    """Return a rule for one line of at most ``most`` printable characters."""

    def rule(value: str) -> str:
        return "" if value.isprintable() and len(value) <= most else f"must be one line of at most {most} printable characters"

    return rule


def prose(most: int) -> Rule:
    """Return a rule for text of any lines with at most ``most`` characters."""

    def rule(value: str) -> str:
        return "" if len(value) <= most else f"must be at most {most} characters"

    return rule


def uuid(value: str) -> str:
    """Return why a text is not a UUID or its placeholder, or ""."""
    return "" if value == UUID or forms.UUID.fullmatch(value) else f"must be {UUID} or a UUID such as 5d307ca9-b3ef-428c-8861-06e72d69f223"


def literal_uuid(value: str) -> str:
    """Return why a text is not a UUID, or ""."""
    return "" if forms.UUID.fullmatch(value) else "must be a UUID such as 5d307ca9-b3ef-428c-8861-06e72d69f223"


def mac(value: str) -> str:
    """Return why a text is not a guest's MAC address or its placeholder, or ""."""
    return "" if name_in(value, MAC) else network.mac_problem(value)


# --- placeholders ----------------------------------------------------------------------------------------------------------------

TYPE: Final = "@type@"
NAME: Final = "@name@"
UUID: Final = "@uuid@"
KERNEL: Final = "@kernel@"
INITRD: Final = "@initrd@"
LOADER: Final = "@loader@"
NVRAM: Final = "@nvram@"
SERIAL: Final = "@serial@"
AGENT: Final = "@agent@"
VNC: Final = "@vnc@"
SPICE: Final = "@spice@"
DISK: Final = "disk"
NETWORK: Final = "network"
MAC: Final = "mac"


def named(kind: str) -> Rule:
    """Return a rule for the placeholder ``@kind:NAME@`` of something next to the XML."""

    def rule(value: str) -> str:
        if name_in(value, kind):
            return ""
        return f"must be the placeholder @{kind}:NAME@, because only files in the machine's pod are allowed"

    return rule


def name_in(value: str, kind: str) -> str:
    """Return the name in a placeholder of this kind; "" for other texts and invalid names."""
    match = _NAMED.fullmatch(value)
    return match[2] if match and match[1] == kind and not names.label_errors(match[2]) else ""
