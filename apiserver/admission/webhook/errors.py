"""Errors of webhook calls.

The webhook's ``failurePolicy`` applies to ``CallFailed``; other errors are the client's answer.
"""

from __future__ import annotations

from typing import Any, Final

from apiserver.admission.errors import quoted
from apiserver.apis.meta.errors import BadRequest, StatusError, from_status

_MAX_CODE: Final = 999


class CallFailed(Exception):
    """A webhook's call failed, or its answer is invalid."""

    def __init__(self, webhook: str, reason: str, code: int) -> None:
        super().__init__(f"failed calling webhook {quoted(webhook)}: {reason}")
        self.code = code
        """For metrics: of the failure, or of the webhook's server."""


class Denied(StatusError):
    """The webhook refused; it may set code, reason and details."""

    def __init__(self, status: dict[str, Any]) -> None:
        known = from_status(status)
        super().__init__(known.message, known.details, known.metadata)
        self.code = status["code"]  # type: ignore[misc]  # a class has one code, a webhook's answer any
        self._status = status

    def to_json(self) -> dict[str, Any]:
        """Return the ``Status`` that :func:`denied` made."""
        return self._status


def denied(webhook: str, result: dict[str, Any] | None) -> Denied:
    """Return the client's error for a refusal, with the webhook's name and a code of at least 400. ``result``: the answer's ``status``."""
    given = result or {}
    code = given.get("code")
    code = code if isinstance(code, int) and code <= _MAX_CODE else 0
    status = given.get("status")
    by = f"admission webhook {quoted(webhook)} denied the request"
    explained = given.get("message") or given.get("reason")
    answer: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": given.get("metadata") if isinstance(given.get("metadata"), dict) else {},
        "status": status if isinstance(status, str) and status not in ("", "Success") else "Failure",
        "message": f"{by}: {explained}" if explained else f"{by} without explanation",
    }
    if isinstance(given.get("reason"), str) and given["reason"]:
        answer["reason"] = given["reason"]
    if isinstance(given.get("details"), dict) and given["details"]:
        answer["details"] = given["details"]
    answer["code"] = max(code, 400)
    return Denied(answer)


def no_dry_run(webhook: str) -> BadRequest:
    """Return the error for a dry run with a webhook that has side effects."""
    return BadRequest(f"admission webhook {quoted(webhook)} does not support dry run")
