"""The body of the verb ``setpassword``: fields and limits. No process stores or logs it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

NAME: Final = "setpassword"
MAX_USER: Final = 256
MAX_PASSWORD: Final = 1024
MAX_BODY_BYTES: Final = 16 << 10
"""The limit of requests to virt-handler."""


@dataclass(frozen=True, slots=True)
class Password:
    """A user's new password; ``encrypted``: it is a hash, as in ``/etc/shadow``."""

    user: str
    password: str = field(repr=False)
    encrypted: bool = False


def problem(name: str, given: object) -> str:
    """Return why a field of the body of ``setpassword`` is invalid, without the value, or ""."""
    if name == "encrypted":
        return "" if isinstance(given, bool) else "must be true or false"
    most = MAX_USER if name == "user" else MAX_PASSWORD
    if not isinstance(given, str) or not given:
        return "must be a string that is not empty"
    if len(given) > most:
        return f"must have at most {most} characters"
    forbidden = ":\n\r\0" if name == "user" else "\n\r\0"
    return "must not contain control characters or, in a user, a colon" if any(each in given for each in forbidden) else ""


def of(body: object) -> Password:
    """Return user and password in the body of ``setpassword``.

    Raises:
        ValueError: it is invalid; the text never contains the password.
    """
    if not isinstance(body, dict):
        raise ValueError("it must be an object")  # noqa: TRY004  # as for its fields
    given: dict[str, Any] = {"encrypted": False, **body}
    for name in ("user", "password", "encrypted"):
        if why := problem(name, given.get(name)):
            raise ValueError(f"{name} {why}")
    return Password(given["user"], given["password"], given["encrypted"])
