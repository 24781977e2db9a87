"""Checks values before they become part of the domain XML.

Each check returns the value, or raises ``InvalidSpecification``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import PurePosixPath
from typing import Final

from apiserver.apis.virt.places import layout

_WORD: Final = re.compile(r"[A-Za-z0-9_.+-]{1,64}")
_WORD_START: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
_SMBIOS: Final = re.compile(r"[ -~]{1,64}")


class InvalidSpecification(Exception):
    """A specification cannot become a domain; the message starts with the field's path."""


def snake(name: str) -> str:
    """Return libvirt's spelling of a field's name: ``error_policy`` for ``errorPolicy``."""
    return _WORD_START.sub("_", name).lower()


def segment(value: object, path: str) -> str:
    """Return ``value`` if it is a single path component, not ``.`` or ``..``; else raise InvalidSpecification about field ``path``."""
    if not isinstance(value, str) or not value or value in (".", "..") or "/" in value or not value.isprintable():
        raise InvalidSpecification(f"{path}: {value!r} is not a file name")
    return value


def confined(root: str, value: object, path: str) -> PurePosixPath:
    """Return ``value``, a relative path without ``..``, below ``root``; else raise InvalidSpecification about field ``path``."""
    relative = PurePosixPath(value) if isinstance(value, str) else PurePosixPath()
    if not isinstance(value, str) or not relative.parts or relative.is_absolute() or ".." in relative.parts or not value.isprintable():
        raise InvalidSpecification(f"{path}: {value!r} is not a relative path inside its volume")
    return PurePosixPath(root) / relative


def word(value: object, path: str) -> str:
    """Return ``value`` if it is one word of letters, digits and ``_.+-``; else raise InvalidSpecification."""
    if not isinstance(value, str) or not _WORD.fullmatch(value):
        raise InvalidSpecification(f"{path}: {value!r} is not allowed")
    return value


def one_of(words: Collection[str], value: object, path: str) -> str:
    """Return ``value`` if it is one of ``words``; else raise InvalidSpecification."""
    if not isinstance(value, str) or value not in words:
        raise InvalidSpecification(f"{path}: {value!r} is not supported")
    return value


def number(value: object, least: int, most: int, path: str) -> str:
    """Return ``value`` as digits if it is an integer from ``least`` to ``most``; else raise InvalidSpecification."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise InvalidSpecification(f"{path}: {value!r} is not a number from {least} to {most}")
    return str(value)


def printable(value: object, path: str) -> str:
    """Return ``value`` if it is text without control characters; else raise InvalidSpecification."""
    if not isinstance(value, str) or not value.isprintable():
        raise InvalidSpecification(f"{path}: control characters are not allowed")
    return value


def smbios(given: Mapping[str, object], fields: Iterable[str], path: str) -> dict[str, str]:
    """Return the ``fields`` of ``given`` that are set, by name.

    Raises InvalidSpecification unless they are SMBIOS strings: short printable ASCII.
    """
    found: dict[str, str] = {}
    for field in fields:
        value = given.get(field)
        if value is None:
            continue
        if not isinstance(value, str) or not _SMBIOS.fullmatch(value):
            raise InvalidSpecification(f"{path}.{field}: {value!r} is not allowed")
        found[field] = value
    return found


def socket(name: str) -> str:
    """Return the path of the socket ``name`` in the pod's ``RUN_DIRECTORY``."""
    return f"{layout.RUN_DIRECTORY}/{name}"
