"""Shares parallel calls fairly between the machines' namespaces."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator
from typing import Final

LEFT_FOR_OTHERS: Final = 1
"""Turns that one namespace cannot take, nor all namespaces together that had a timeout: all their calls may hang."""
MAX_TIMED_OUT: Final = 256
"""Namespaces with a recorded timeout."""


class NoTurn(TimeoutError):
    """A call waited too long for its turn."""


class Turns:
    """Several turns for calls; the next one goes to the namespace that has waited longest since its last.

    One turn (of several) is left for other namespaces. After a timeout, a namespace has at most one until a call is answered.
    """

    def __init__(self, number: int) -> None:
        """``number`` is the most parallel calls, at least 1."""
        self._free = number
        self._share = max(number - LEFT_FOR_OTHERS, 1)
        self._taken: Counter[str] = Counter()
        self._timed_out: OrderedDict[str, None] = OrderedDict()
        """Namespaces with a timeout of their last call."""
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """By namespace, in the order of service."""

    @contextlib.asynccontextmanager
    async def turn(self, namespace: str, patience: float | None) -> AsyncIterator[None]:
        """Wait for a turn of this namespace, and hold it inside the block. Raises NoTurn after ``patience`` seconds; None: never.

        After TimeoutError or cancellation in the block, the namespace gets one turn at a time until a call ends otherwise.
        """
        try:
            async with asyncio.timeout(patience):
                await self._acquire(namespace)
        except TimeoutError as error:
            raise NoTurn from error
        is_answered = True
        try:
            yield
        except (TimeoutError, asyncio.CancelledError):
            is_answered = False
            raise
        finally:
            self._note(namespace, is_answered=is_answered)
            self._release(namespace)

    def _note(self, namespace: str, *, is_answered: bool) -> None:
        self._timed_out.pop(namespace, None)
        if not is_answered:
            self._timed_out[namespace] = None
            if len(self._timed_out) > MAX_TIMED_OUT:
                self._timed_out.popitem(last=False)

    async def _acquire(self, namespace: str) -> None:
        if self._may_have(namespace):
            self._take(namespace)
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(namespace, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._leave(namespace, turn)
            else:  # it got the turn while the wait ended
                self._release(namespace)
            raise

    def _may_have(self, namespace: str) -> bool:
        if not self._free:
            return False
        if namespace not in self._timed_out:
            return self._taken[namespace] < self._share
        return not self._taken[namespace] and sum(self._taken[each] for each in self._timed_out) < self._share

    def _take(self, namespace: str) -> None:
        self._free -= 1
        self._taken[namespace] += 1

    def _leave(self, namespace: str, turn: asyncio.Future[None]) -> None:
        queue = self._waiting.get(namespace, deque())
        with contextlib.suppress(ValueError):  # already removed
            queue.remove(turn)
        if not queue:
            self._waiting.pop(namespace, None)

    def _release(self, namespace: str) -> None:
        self._free += 1
        self._taken[namespace] -= 1
        if not self._taken[namespace]:
            del self._taken[namespace]
        while (following := next(filter(self._may_have, self._waiting), None)) is not None:
            queue = self._waiting.pop(following)
            turn = queue.popleft()
            if queue:
                self._waiting[following] = queue  # after the others
            if not turn.done():
                self._take(following)
                turn.set_result(None)
