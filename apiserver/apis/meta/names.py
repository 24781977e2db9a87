"""The syntax of names, label keys and label values, with apimachinery's error texts.

A text that is too long gets only that error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

MAX_LABEL: Final = 63
MAX_SUBDOMAIN: Final = 253
_LONGEST_KEY: Final = MAX_SUBDOMAIN + 1 + MAX_LABEL
_LONGEST_KEYS: Final = 4096
"""Characters of an object's keys that are cached together."""
_ABSURD: Final = 1024

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = _LABEL + r"(\." + _LABEL + ")*"
_KEY: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE: Final = f"({_KEY})?"

_LABEL_PATTERN: Final = re.compile(_LABEL)
_SUBDOMAIN_PATTERN: Final = re.compile(_SUBDOMAIN)
_KEY_PATTERN: Final = re.compile(_KEY)
_VALUE_PATTERN: Final = re.compile(_VALUE)

_KEY_RULE: Final = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    f"(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_KEY}')"
)
_VALUE_RULE: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    f"alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '{_VALUE}')"
)

GENERATED_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
GENERATED_SUFFIX: Final = 5
MAX_GENERATED_BASE: Final = MAX_LABEL - GENERATED_SUFFIX


def label_errors(name: str) -> list[str]:
    """Return errors in an RFC 1123 label: 1–63 bytes of ``a-z0-9-``, with a letter or digit at both ends."""
    found = _too_long(name, MAX_LABEL)
    if len(name) <= _ABSURD and not _LABEL_PATTERN.fullmatch(name):
        if _SUBDOMAIN_PATTERN.fullmatch(name):
            found.append("must not contain dots")
        else:
            found.append(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an "
                f"alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL}')"
            )
    return found


def subdomain_errors(name: str) -> list[str]:
    """Return errors in an RFC 1123 subdomain: labels, of any length, joined by dots, at most 253 bytes."""
    found = _too_long(name, MAX_SUBDOMAIN)
    if len(name) <= _ABSURD and not _SUBDOMAIN_PATTERN.fullmatch(name):
        found.append(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with "
            f"an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
        )
    return found


def qualified_name_errors(key: str) -> list[str]:
    """Return errors in a label key, a finalizer, or a lowercased annotation key: ``[prefix/]name``."""
    parts = key.split("/")
    if len(parts) > 2:
        rule = f"a valid label key {_KEY_RULE} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return [rule]
    found = []
    if len(parts) == 2:
        if not parts[0]:
            found.append("prefix part must be non-empty")
        else:
            found += [f"prefix part {each}" for each in subdomain_errors(parts[0])]
    name = parts[-1]
    if not name:
        found.append("name part must be non-empty")
    elif len(name.encode()) > MAX_LABEL:
        found.append(f"name part must be no more than {MAX_LABEL} bytes")
    if len(name) <= _ABSURD and not _KEY_PATTERN.fullmatch(name):
        found.append(f"name part {_KEY_RULE}")
    return found


def label_value_errors(value: str) -> list[str]:
    """Return errors in a label's value. Valid are "" and at most 63 letters, digits, ``-_.``, with a letter or digit at both ends."""
    found = _too_long(value, MAX_LABEL)
    if len(value) <= _ABSURD and not _VALUE_PATTERN.fullmatch(value):
        found.append(_VALUE_RULE)
    return found


def are_qualified_names(keys: Iterable[str], *, in_lower_case: bool = False) -> bool:
    """Return whether all keys pass :func:`qualified_name_errors`, ``in_lower_case`` after lowering them."""
    listed = tuple(keys)
    found = _are_qualified if sum(map(len, listed)) <= _LONGEST_KEYS else _are_qualified.__wrapped__
    return found(listed, in_lower_case)


def are_label_values(values: Iterable[str]) -> bool:
    """Return whether all values pass :func:`label_value_errors`."""
    match = _VALUE_PATTERN.fullmatch
    return all(len(each) <= MAX_LABEL and match(each) for each in values)


@lru_cache(maxsize=256)
def _are_qualified(keys: tuple[str, ...], in_lower_case: bool) -> bool:  # noqa: FBT001 - remembered by its place
    compared = list(map(str.lower, keys)) if in_lower_case else keys
    return max(map(len, compared), default=0) <= _LONGEST_KEY and all(map(_is_qualified_name, compared))


@lru_cache(maxsize=8192)
def _is_qualified_name(key: str) -> bool:
    return not qualified_name_errors(key)


def generate(base: str) -> str:
    """Return a name for ``generateName``: the base, cut to 58 bytes, and five random characters without vowels."""
    import secrets  # 0.3 MiB, unused by virt-launcher

    suffix = "".join(secrets.choice(GENERATED_ALPHABET) for _ in range(GENERATED_SUFFIX))
    return base.encode()[:MAX_GENERATED_BASE].decode(errors="ignore") + suffix


def _too_long(text: str, limit: int) -> list[str]:
    return [f"must be no more than {limit} bytes"] if len(text.encode()) > limit else []
