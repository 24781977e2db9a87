"""Answers a GET of a text from a guest's launcher: checks it, limits it, and returns JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from apiserver.apis.meta import errors
from apiserver.apis.meta.objects import Object

MAX_WAITING: Final = 64
MAX_WAITING_PER_MACHINE: Final = 8
RETRY_SECONDS: Final = 5

Ask = Callable[[str, str], Awaitable[str]]
"""(uid of the pod, what) → the launcher's text; raises StatusError."""
Check = Callable[[str], Object]
"""The launcher's untrusted text → the object for virt-api; raises ValueError."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Functions that read texts of guests, and check them."""

    ask: Ask
    checks: Mapping[str, Check]


class Waiting:
    """Readers that wait for an answer. Their number is limited, because a guest may never answer."""

    def __init__(self) -> None:
        self._waiting: Counter[str] = Counter()

    @contextmanager
    def one(self, uid: str, what: str) -> Iterator[None]:
        """Count a reader of the machine with this uid while the block runs. Raises TooManyRequests, also for all machines' total."""
        if self._waiting[uid] >= MAX_WAITING_PER_MACHINE or self._waiting.total() >= MAX_WAITING:
            raise errors.TooManyRequests(
                f"too many requests for {what} are waiting; try again later", errors.Details(retry_after_seconds=RETRY_SECONDS)
            )
        self._waiting[uid] += 1
        try:
            yield
        finally:
            self._waiting[uid] -= 1
            if not self._waiting[uid]:
                del self._waiting[uid]


async def read(reading: Reading, waiting: Waiting, pod_uid: str, vm_uid: str, what: str) -> Object:
    """Return the checked content of a launcher's text ``what``.

    Raises StatusError without an answer, for an invalid text, or if too many readers wait.
    """
    with waiting.one(vm_uid, what):
        text = await reading.ask(pod_uid, what)
    try:
        return reading.checks[what](text)
    except ValueError as error:
        raise errors.ServiceUnavailable(f"its virt-launcher returned invalid {what}: {type(error).__name__}") from error
