"""API errors: one class per reason of ``metav1.Status``, for server and client.

::

    StatusError
    ├── BadRequest 400            ├── Conflict 409              ├── Timeout 504
    ├── Unauthorized 401          ├── Gone 410                  ├── ServerTimeout 500
    ├── Forbidden 403             ├── Expired 410               ├── InternalError 500
    ├── NotFound 404              ├── RequestEntityTooLarge 413 ├── ServiceUnavailable 503
    ├── MethodNotAllowed 405      ├── UnsupportedMediaType 415  └── UnknownStatus (any other)
    ├── NotAcceptable 406         ├── Invalid 422
    ├── AlreadyExists 409         └── TooManyRequests 429

Reasons and codes are those of apimachinery's ``pkg/api/errors``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from apiserver.apis.meta.lines import one_line

MAX_UNTRUSTED_MESSAGE: Final = 1024
MAX_UNTRUSTED_RETRY_SECONDS: Final = 60


@dataclass(frozen=True, slots=True)
class Cause:
    """One cause of an API error: ``reason`` for programs, ``message`` for users, ``field`` as a path like ``spec.replicas``."""

    reason: str
    message: str
    field: str = ""

    def to_json(self) -> dict[str, str]:
        """Return the ``metav1.StatusCause``."""
        body = {"reason": self.reason, "message": self.message, "field": self.field}
        return {key: value for key, value in body.items() if value}


@dataclass(frozen=True, slots=True)
class Details:
    """``metav1.StatusDetails``: ``kind`` is the resource's plural, in some errors the kind."""

    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: tuple[Cause, ...] = ()
    retry_after_seconds: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the ``metav1.StatusDetails`` without empty fields."""
        body: dict[str, Any] = {"name": self.name, "group": self.group, "kind": self.kind, "uid": self.uid}
        body["causes"] = [cause.to_json() for cause in self.causes]
        body["retryAfterSeconds"] = self.retry_after_seconds
        return {key: value for key, value in body.items() if value}


@dataclass(eq=False)
class StatusError(Exception):
    """An error of the API, which :meth:`to_json` returns as a ``Status``."""

    message: str
    details: Details = field(default_factory=Details)
    metadata: dict[str, Any] = field(default_factory=dict)
    """The Status's: with Expired, a new ``continue`` token."""

    code: ClassVar[int] = 500
    reason: ClassVar[str] = "Unknown"

    def __str__(self) -> str:
        return self.message

    def to_json(self) -> dict[str, Any]:
        """Return the ``v1 Status``."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
        }
        if details := self.details.to_json():
            status["details"] = details
        status["code"] = self.code
        return status


class BadRequest(StatusError):
    """The request is malformed, or asks for what is not available now, such as a stopped machine's console."""

    code = 400
    reason = "BadRequest"


class Unauthorized(StatusError):
    """The user is not authenticated."""

    code = 401
    reason = "Unauthorized"


class Forbidden(StatusError):
    """The user is not authorized."""

    code = 403
    reason = "Forbidden"


class NotFound(StatusError):
    """The object, resource or path does not exist."""

    code = 404
    reason = "NotFound"


class MethodNotAllowed(StatusError):
    """The resource does not support the verb."""

    code = 405
    reason = "MethodNotAllowed"


class NotAcceptable(StatusError):
    """The server supports no media type in Accept."""

    code = 406
    reason = "NotAcceptable"


class AlreadyExists(StatusError):
    """The object to create exists."""

    code = 409
    reason = "AlreadyExists"


class Conflict(StatusError):
    """The request conflicts with the object's state, which may have changed meanwhile."""

    code = 409
    reason = "Conflict"


class Gone(StatusError):
    """The object existed, and will not exist again."""

    code = 410
    reason = "Gone"


class Expired(StatusError):
    """The ``resourceVersion`` or continue token is too old."""

    code = 410
    reason = "Expired"


class RequestEntityTooLarge(StatusError):
    """The request is larger than the server allows."""

    code = 413
    reason = "RequestEntityTooLarge"


class UnsupportedMediaType(StatusError):
    """The server does not support the body's media type."""

    code = 415
    reason = "UnsupportedMediaType"


class Invalid(StatusError):
    """The object is invalid; ``details.causes`` has its problems, at most 200."""

    code = 422
    reason = "Invalid"


class TooManyRequests(StatusError):
    """The server refuses the request now; retry, after ``details.retry_after_seconds`` if set."""

    code = 429
    reason = "TooManyRequests"


class ServerTimeout(StatusError):
    """The server did not finish in time; retry."""

    code = 500
    reason = "ServerTimeout"


class InternalError(StatusError):
    """The server failed: a bug, or what it needs is broken or does not answer, such as a webhook or kube-apiserver."""

    code = 500
    reason = "InternalError"


class ServiceUnavailable(StatusError):
    """The server cannot serve now; retry."""

    code = 503
    reason = "ServiceUnavailable"


class Timeout(StatusError):
    """The request exceeded its time limit."""

    code = 504
    reason = "Timeout"


class UnknownStatus(StatusError):
    """An answer with a reason and code of no other class; it does not keep them."""


_BY_REASON: dict[str, type[StatusError]] = {
    each.reason: each
    for each in (
        BadRequest, Unauthorized, Forbidden, NotFound, MethodNotAllowed, NotAcceptable, AlreadyExists, Conflict, Gone, Expired,
        RequestEntityTooLarge, UnsupportedMediaType, Invalid, TooManyRequests, ServerTimeout, InternalError, ServiceUnavailable, Timeout,
    )
}  # fmt: skip
_BY_CODE: dict[int, type[StatusError]] = {
    400: BadRequest, 401: Unauthorized, 403: Forbidden, 404: NotFound, 405: MethodNotAllowed, 406: NotAcceptable, 409: Conflict,
    410: Expired, 413: RequestEntityTooLarge, 415: UnsupportedMediaType, 422: Invalid, 429: TooManyRequests, 500: InternalError,
    503: ServiceUnavailable, 504: Timeout,
}  # fmt: skip


def from_status(status: dict[str, Any], http_code: int = 0) -> StatusError:
    """Return the error that a ``Status`` describes, of its reason's class, else its code's.

    ``http_code`` counts if it has no code. Fields of a wrong type are ignored.
    """
    code = _number(status.get("code")) or http_code or InternalError.code
    cls = _BY_REASON.get(_text(status.get("reason"))) or _BY_CODE.get(code) or UnknownStatus
    given = _members(status.get("details"))
    listed = given.get("causes")
    causes = [_members(each) for each in (listed if isinstance(listed, list) else ())]
    details = Details(
        name=_text(given.get("name")),
        group=_text(given.get("group")),
        kind=_text(given.get("kind")),
        uid=_text(given.get("uid")),
        causes=tuple(Cause(_text(each.get("reason")), _text(each.get("message")), _text(each.get("field"))) for each in causes),
        retry_after_seconds=_number(given.get("retryAfterSeconds")),
    )
    return cls(_text(status.get("message")) or f"the server answered {code}", details, dict(_members(status.get("metadata"))))


def of_untrusted(error: StatusError) -> StatusError:
    """Return an untrusted source's error with only its class, one short line, and a limited retry delay."""
    details = Details(retry_after_seconds=min(error.details.retry_after_seconds, MAX_UNTRUSTED_RETRY_SECONDS))
    return type(error)(one_line(error.message, MAX_UNTRUSTED_MESSAGE), details)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object) -> int:
    return value if type(value) is int and 0 <= value < 1 << 31 else 0


def _members(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def from_http(code: int, body: str) -> StatusError:
    """Return the error for an answer without a ``Status``, such as a proxy's."""
    cls = _BY_CODE.get(code, UnknownStatus)
    return cls(f"the server answered {code}: {body.strip()[:500]}")
