"""How long an outgoing migration has made no progress, as seen by this process. It has no clock; callers pass the time."""

from __future__ import annotations

from launcher.protocol import messages


class Stalls:
    """Tracks the transferred bytes of each attempt, and when they last changed."""

    def __init__(self) -> None:
        self._moved: dict[str, tuple[int, float]] = {}
        """By uid."""

    def seconds(self, uid: str, known: messages.MigrationStatus | None, now: float) -> float:
        """Return for how many seconds there was no progress; 0 if unknown.

        Args:
            uid: of the attempt.
            known: the source virt-launcher's report; None: none.
            now: in monotonic seconds.
        """
        if known is None or known.state not in ("running", "cancelled"):
            self.forget(uid)
            return 0.0
        moved = max(known.data_processed_bytes, known.memory_processed_bytes)
        before = self._moved.get(uid)
        if known.state == "running" and (before is None or before[0] != moved):
            before = self._moved[uid] = (moved, now)
        return now - before[1] if before is not None else 0.0

    def forget(self, uid: str) -> None:
        """Drop an attempt that is over."""
        self._moved.pop(uid, None)
