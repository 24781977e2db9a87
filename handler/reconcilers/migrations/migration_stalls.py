"""Time for which nothing of a guest that leaves this node has moved, as this process has seen it. No clock: whoever asks says the time."""

from __future__ import annotations

from launcher.protocol import messages


class Stalls:
    """Remembers of each attempt how many bytes have moved, and since when it is that many."""

    def __init__(self) -> None:
        self._moved: dict[str, tuple[int, float]] = {}
        """By uid."""

    def seconds(self, uid: str, known: messages.MigrationStatus | None, now: float) -> float:
        """Return for how many seconds nothing has moved; 0 where nobody can tell.

        Args:
            uid: of the attempt.
            known: what virt-launcher of the source says of it now; None: nothing.
            now: in seconds of a clock that never goes back.
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
        """Forget one that is over."""
        self._moved.pop(uid, None)
