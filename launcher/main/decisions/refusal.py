"""A request's refusal, as an exception."""

from __future__ import annotations

from launcher.protocol import messages


class RequestRefused(Exception):
    """A request that is answered with a ``Refusal``."""

    def __init__(
        self,
        reason: messages.RefusalReason,
        message: str,
        disks: tuple[str, ...] = (),
        *,
        full: bool = False,
        unresolved: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.disks = disks
        self.full = full
        self.unresolved = unresolved
