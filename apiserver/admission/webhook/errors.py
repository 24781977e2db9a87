"""Errors of asking a webhook.

``CallFailed`` is for the webhook's ``failurePolicy``; everything else that is raised is the client's answer.
"""

from __future__ import annotations

from typing import Any, Final

from apiserver.admission.errors import quoted
from apiserver.apis.meta.errors import BadRequest, StatusError, from_status

_MAX_CODE: Final = 999


class CallFailed(Exception):
    """The webhook was not asked, or did not give an answer that counts."""

    def __init__(self, webhook: str, reason: str, code: int) -> None:
        super().__init__(f"failed calling webhook {quoted(webhook)}: {reason}")
        self.code = code
        """For metrics: what the failure amounts to, or what the webhook's server answered with."""


class Denied(StatusError):
    """The webhook said no; it may choose code, reason and details of the answer."""

    def __init__(self, status: dict[str, Any]) -> None:
        known = from_status(status)
        super().__init__(known.message, known.details, known.metadata)
        self.code = status["code"]  # type: ignore[misc]  # a class has one code, a webhook's answer any
        self._status = status

    def to_json(self) -> dict[str, Any]:
        """Return the ``Status`` as the webhook gave it, with the message that names the webhook."""
        return self._status


def denied(webhook: str, result: dict[str, Any] | None) -> Denied:
    """Return what the client hears of a refusal: never a success, always with the webhook's name."""
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
    """Return the error for a dry run that would call a webhook with side effects."""
    return BadRequest(f"admission webhook {quoted(webhook)} does not support dry run")
