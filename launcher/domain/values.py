"""Values of a specification that become part of a domain's XML: checked once more here, since the launcher believes nobody."""

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
    """A specification from which no domain can be made; the message starts with the path of the field."""


def snake(name: str) -> str:
    """Return the name of a field as libvirt writes it: ``error_policy`` for ``errorPolicy``."""
    return _WORD_START.sub("_", name).lower()


def segment(value: object, path: str) -> str:
    """Return ``value`` if it can be one component of a path.

    Raises:
        InvalidSpecification: when it is empty, has a slash or would lead elsewhere.
    """
    if not isinstance(value, str) or not value or value in (".", "..") or "/" in value or not value.isprintable():
        raise InvalidSpecification(f"{path}: {value!r} is no name of a file")
    return value


def confined(root: str, value: object, path: str) -> PurePosixPath:
    """Return ``value`` below ``root``.

    Raises:
        InvalidSpecification: when it is absolute, empty or would climb out.
    """
    relative = PurePosixPath(value) if isinstance(value, str) else PurePosixPath()
    if not isinstance(value, str) or not relative.parts or relative.is_absolute() or ".." in relative.parts or not value.isprintable():
        raise InvalidSpecification(f"{path}: {value!r} is no relative path inside its volume")
    return PurePosixPath(root) / relative


def word(value: object, path: str) -> str:
    """Return ``value`` if it is one word of letters, digits and ``_.+-``.

    Raises:
        InvalidSpecification: when it is not.
    """
    if not isinstance(value, str) or not _WORD.fullmatch(value):
        raise InvalidSpecification(f"{path}: {value!r} is not allowed")
    return value


def one_of(words: Collection[str], value: object, path: str) -> str:
    """Return ``value`` if it is one of ``words``.

    Raises:
        InvalidSpecification: when it is not.
    """
    if not isinstance(value, str) or value not in words:
        raise InvalidSpecification(f"{path}: {value!r} is not supported")
    return value


def number(value: object, least: int, most: int, path: str) -> str:
    """Return ``value`` in digits if it is a whole number from ``least`` to ``most``.

    Raises:
        InvalidSpecification: when it is not.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise InvalidSpecification(f"{path}: {value!r} is no number from {least} to {most}")
    return str(value)


def printable(value: object, path: str) -> str:
    """Return ``value`` if it is one line of text.

    Raises:
        InvalidSpecification: when it has control characters.
    """
    if not isinstance(value, str) or not value.isprintable():
        raise InvalidSpecification(f"{path}: control characters are not allowed")
    return value


def smbios(given: Mapping[str, object], fields: Iterable[str], path: str) -> dict[str, str]:
    """Return those of the fields that are given, if they can be strings of an SMBIOS table.

    Args:
        given: has the fields.
        fields: their names.
        path: of ``given``.

    Raises:
        InvalidSpecification: when it is empty, long, or has other characters than the printable ones of ASCII.
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
    """Return the path of a socket of the pod."""
    return f"{layout.RUN_DIRECTORY}/{name}"
