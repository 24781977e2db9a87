"""How long an outgoing migration has made no progress, by the caller's clock."""

from __future__ import annotations

from launcher.protocol import messages


class Stalls:
    """Tracks when the transferred bytes of each attempt last changed."""

    def __init__(self) -> None:
        self._moved: dict[str, tuple[int, float]] = {}
        """By uid."""

    def seconds(self, uid: str, report: messages.MigrationStatus | None, now: float) -> float:
        """Record an attempt's report; return for how many seconds its bytes have not changed, 0 if it does not run or for the first.

        ``now`` is in monotonic seconds. A cancelled attempt keeps its last change.
        """
        if report is None or report.state not in ("running", "cancelled"):
            self.forget(uid)
            return 0.0
        moved = max(report.data_processed_bytes, report.memory_processed_bytes)
        before = self._moved.get(uid)
        if report.state == "running" and (before is None or before[0] != moved):
            before = self._moved[uid] = (moved, now)
        return now - before[1] if before is not None else 0.0

    def forget(self, uid: str) -> None:
        """Drop the state of an attempt that is over."""
        self._moved.pop(uid, None)
