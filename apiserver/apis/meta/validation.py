"""Field errors: what is wrong where, all in one answer.

::

    spec.domain.cpu.cores: Invalid value: 0: must be greater than or equal to 1
    └────── path ───────┘  └──reason───┘ value └────────── detail ──────────┘

The grammar is that of apimachinery's ``util/validation/field``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from apiserver.apis.meta import errors


class Reason(StrEnum):
    """``reason`` of a cause in ``details.causes``."""

    NOT_FOUND = "FieldValueNotFound"
    REQUIRED = "FieldValueRequired"
    DUPLICATE = "FieldValueDuplicate"
    INVALID = "FieldValueInvalid"
    NOT_SUPPORTED = "FieldValueNotSupported"
    FORBIDDEN = "FieldValueForbidden"
    TOO_LONG = "FieldValueTooLong"
    TOO_MANY = "FieldValueTooMany"
    TOO_FEW = "FieldValueTooFew"
    TYPE_INVALID = "FieldValueTypeInvalid"


_PHRASES: Final = {
    Reason.NOT_FOUND: "Not found",
    Reason.REQUIRED: "Required value",
    Reason.DUPLICATE: "Duplicate value",
    Reason.INVALID: "Invalid value",
    Reason.NOT_SUPPORTED: "Unsupported value",
    Reason.FORBIDDEN: "Forbidden",
    Reason.TOO_LONG: "Too long",
    Reason.TOO_MANY: "Too many",
    Reason.TOO_FEW: "Too few",
    Reason.TYPE_INVALID: "Invalid value",
}
_WITHOUT_VALUE: Final = frozenset({Reason.REQUIRED, Reason.FORBIDDEN, Reason.TOO_LONG})
MAX_CAUSES: Final = 200
"""An object may have a hundred thousand wrong disks."""
MAX_VALUE: Final = 1024
"""Characters of a value in an error, because a body may have 3 MiB."""


@dataclass(frozen=True, slots=True)
class Path:
    """Path of a field: ``Path("spec").child("disks").index(0).key("a")`` prints ``spec.disks[0][a]``."""

    text: str = ""

    def child(self, *names: str) -> Path:
        """Return the path of a child field; each further name is one below."""
        return Path(".".join([self.text, *names] if self.text else names))

    def index(self, position: int) -> Path:
        """Return a list element's path."""
        return Path(f"{self.text}[{position}]")

    def key(self, key: str) -> Path:
        """Return the path of a map's value."""
        return Path(f"{self.text}[{key}]")

    def __str__(self) -> str:
        return self.text or "<nil>"


@dataclass(frozen=True, slots=True)
class FieldError:
    """One invalid field."""

    path: str
    reason: Reason
    value: Any
    detail: str = ""

    @property
    def body(self) -> str:
        """The message without the path."""
        text = _PHRASES[self.reason]
        if self.reason not in _WITHOUT_VALUE:
            text += f": {printed(self.value)}"
        return f"{text}: {self.detail}" if self.detail else text

    def __str__(self) -> str:
        return f"{self.path}: {self.body}"

    def to_cause(self) -> errors.Cause:
        """Return the error as a ``Cause`` for ``details.causes``."""
        return errors.Cause(str(self.reason), self.body, self.path)


def required(path: Path, detail: str = "") -> FieldError:
    """Return the error of an empty required field."""
    return FieldError(str(path), Reason.REQUIRED, "", detail)


def invalid(path: Path, value: Any, detail: str) -> FieldError:  # noqa: ANN401 - any JSON value
    """Return the error of a malformed value, or one out of range."""
    return FieldError(str(path), Reason.INVALID, value, detail)


def type_invalid(path: Path, value: Any, detail: str) -> FieldError:  # noqa: ANN401 - any JSON value
    """Return the error of a value of a wrong type."""
    return FieldError(str(path), Reason.TYPE_INVALID, value, detail)


def not_supported(path: Path, value: Any, supported: Sequence[str]) -> FieldError:  # noqa: ANN401 - any JSON value
    """Return the error of a value outside of an enumeration."""
    detail = "supported values: " + ", ".join(quote(each) for each in supported) if supported else ""
    return FieldError(str(path), Reason.NOT_SUPPORTED, value, detail)


def duplicate(path: Path, value: Any) -> FieldError:  # noqa: ANN401 - any JSON value
    """Return the error of a repeated value."""
    return FieldError(str(path), Reason.DUPLICATE, value)


def forbidden(path: Path, detail: str) -> FieldError:
    """Return the error of a value or change that is not allowed now."""
    return FieldError(str(path), Reason.FORBIDDEN, "", detail)


def too_long(path: Path, limit: int) -> FieldError:
    """Return the error of a text of more than ``limit`` bytes, without the text."""
    return FieldError(str(path), Reason.TOO_LONG, "", f"may not be more than {limit} {'byte' if limit == 1 else 'bytes'}")


def too_many(path: Path, actual: int, limit: int) -> FieldError:
    """Return the error of a list of more than ``limit`` items."""
    return FieldError(str(path), Reason.TOO_MANY, actual, f"must have at most {limit} {'item' if limit == 1 else 'items'}")


def unknown_field(path: str, prefix: str = "") -> FieldError:
    """Return the error of an unknown field; ``prefix``, such as "json patch ", begins its detail."""
    return FieldError(path, Reason.FORBIDDEN, "", f"{prefix}unknown field {quote(path)}")


def duplicate_field(path: str, prefix: str = "") -> FieldError:
    """Return the error of a duplicate key in a text; ``prefix`` as in :func:`unknown_field`."""
    return FieldError(path, Reason.FORBIDDEN, "", f"{prefix}duplicate field {quote(path)}")


def raise_if_any(found: Iterable[FieldError], *, group: str, kind: str, name: str) -> None:
    """Raise :class:`errors.Invalid` with these errors, if any."""
    problems = list(found)
    if problems:
        raise to_invalid(problems, group=group, kind=kind, name=name)


def to_invalid(found: Sequence[FieldError], *, group: str, kind: str, name: str) -> errors.Invalid:
    """Return one object's 422 error: ``VirtualMachine.kubevirt.io "vm1" is invalid: [a, b]``, with unique messages.

    It has the first ``MAX_CAUSES`` errors, and the number of the others.
    """
    texts, causes = shortened(found)
    summary = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    qualified = f"{kind}.{group}" if group else kind
    details = errors.Details(name=name, group=group, kind=kind, causes=causes)
    return errors.Invalid(f"{qualified} {quote(name)} is invalid: {summary}" if found else f"{qualified} {quote(name)} is invalid", details)


def shortened(found: Sequence[FieldError], most: int = MAX_CAUSES) -> tuple[list[str], tuple[errors.Cause, ...]]:
    """Return (unique messages, causes) of the first ``most`` errors; a last message counts the others."""
    first = found[:most]
    texts = list(dict.fromkeys(str(each) for each in first))
    if len(found) > len(first):
        texts.append(f"and {len(found) - len(first)} more")
    return texts, tuple(each.to_cause() for each in first)


def printed(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Return a value as Go's field errors show it: strings quoted, others as JSON; long ones cut."""
    if isinstance(value, str):
        return quote(value if len(value) <= MAX_VALUE else value[:MAX_VALUE] + "…")
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=str)
    return text if len(text) <= MAX_VALUE else text[:MAX_VALUE] + "…"


_ESCAPES: Final = {"\a": r"\a", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v", "\\": r"\\", '"': r"\""}


def quote(text: str) -> str:
    """Return a text in quotation marks, escaped like Go's ``%q``."""
    return '"' + "".join(_ESCAPES.get(each) or (each if each.isprintable() else _escaped(ord(each))) for each in text) + '"'


def _escaped(code: int) -> str:
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
