"""Keys for the verb ``sendkey``: Linux's names and codes (``linux/input-event-codes.h``), as of ``virsh send-key``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

MAX_KEYS: Final = 16
"""libvirt's limit of keys pressed together."""
MAX_CODE: Final = 767
"""The largest code of Linux."""
DEFAULT_HOLD_MILLISECONDS: Final = 100
"""QEMU's default."""
MAX_HOLD_MILLISECONDS: Final = 10_000
PREFIX: Final = "KEY_"

_FROM_1: Final = (
    "ESC 1 2 3 4 5 6 7 8 9 0 MINUS EQUAL BACKSPACE TAB Q W E R T Y U I O P LEFTBRACE RIGHTBRACE ENTER LEFTCTRL A S D F G H J K L SEMICOLON "
    "APOSTROPHE GRAVE LEFTSHIFT BACKSLASH Z X C V B N M COMMA DOT SLASH RIGHTSHIFT KPASTERISK LEFTALT SPACE CAPSLOCK F1 F2 F3 F4 F5 F6 F7 "
    "F8 F9 F10 NUMLOCK SCROLLLOCK KP7 KP8 KP9 KPMINUS KP4 KP5 KP6 KPPLUS KP1 KP2 KP3 KP0 KPDOT"
)
_FROM_86: Final = (
    "102ND F11 F12 RO KATAKANA HIRAGANA HENKAN KATAKANAHIRAGANA MUHENKAN KPJPCOMMA KPENTER RIGHTCTRL KPSLASH SYSRQ RIGHTALT LINEFEED HOME "
    "UP PAGEUP LEFT RIGHT END DOWN PAGEDOWN INSERT DELETE MACRO MUTE VOLUMEDOWN VOLUMEUP POWER KPEQUAL KPPLUSMINUS PAUSE SCALE KPCOMMA "
    "HANGEUL HANJA YEN LEFTMETA RIGHTMETA COMPOSE"
)
CODES: Final[Mapping[str, int]] = MappingProxyType(
    {PREFIX + name: code for first, names in ((1, _FROM_1), (86, _FROM_86)) for code, name in enumerate(names.split(), first)}
)


def code_of(key: str) -> int | None:
    """Return Linux's code of a key's name (``KEY_C``) or number (``46``), or None."""
    if key in CODES:
        return CODES[key]
    is_number = key.isascii() and key.isdigit() and len(key) <= len(str(MAX_CODE))
    return int(key) if is_number and 0 < int(key) <= MAX_CODE else None


def codes_of(keys: Sequence[str]) -> tuple[int, ...]:
    """Return Linux's codes of the valid keys."""
    return tuple(code for key in keys if (code := code_of(key)) is not None)


def errors(key: str) -> list[str]:
    """Return why a text names no key; empty if it does."""
    wrong = f"must be the name of a Linux key such as KEY_LEFTCTRL or KEY_C, or a number from 1 to {MAX_CODE}"
    return [] if code_of(key) is not None else [wrong]
