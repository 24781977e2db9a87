"""Turns of calls that are made side by side, shared fairly by the namespaces of machines.

No tenant has all of them, and none waits for another's queue.

What a plugin does may take as long as a tenant likes (its options name a server of the tenant's), so the order is not that of the calls.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator
from typing import Final

LEFT_FOR_OTHERS: Final = 1
"""Turns that one namespace never has, where there is more than one: its calls may all last as long as a call can. Nor do all those together
whose last call had no answer: several namespaces may have one server, which hangs."""
MAX_SILENT: Final = 256
"""Namespaces of which that is remembered."""


class NoTurn(TimeoutError):
    """A call waited for its turn for as long as it may."""


class Turns:
    """A number of turns; the next one goes to the namespace that has waited longest since its last.

    A namespace whose last call had no answer in its time has one turn at most until one of its calls has.
    """

    def __init__(self, number: int) -> None:
        """``number`` is of calls at one time, at least 1."""
        self._free = number
        self._share = max(number - LEFT_FOR_OTHERS, 1)
        self._taken: Counter[str] = Counter()
        self._silent: OrderedDict[str, None] = OrderedDict()
        """Namespaces whose last call had no answer."""
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """By namespace, in the order in which they are served."""

    @contextlib.asynccontextmanager
    async def turn(self, namespace: str, patience: float | None) -> AsyncIterator[None]:
        """Wait for a turn, and have it inside of the block; a block that ends by TimeoutError, or is cancelled, had no answer.

        Args:
            namespace: of the machine for which the call is made; empty: nobody's.
            patience: seconds to wait at most; None: as long as it takes.

        Raises:
            NoTurn: there was none in that time.
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
        self._silent.pop(namespace, None)
        if not is_answered:
            self._silent[namespace] = None
            if len(self._silent) > MAX_SILENT:
                self._silent.popitem(last=False)

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
            else:  # it was given while the wait was ended
                self._release(namespace)
            raise

    def _may_have(self, namespace: str) -> bool:
        if self._free == 0 or namespace not in self._silent:
            return self._free > 0 and self._taken[namespace] < self._share
        return not self._taken[namespace] and sum(self._taken[each] for each in self._silent) < self._share

    def _take(self, namespace: str) -> None:
        self._free -= 1
        self._taken[namespace] += 1

    def _leave(self, namespace: str, turn: asyncio.Future[None]) -> None:
        queue = self._waiting.get(namespace, deque())
        with contextlib.suppress(ValueError):  # it was passed over already
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
                self._waiting[following] = queue  # behind the others
            if not turn.done():
                self._take(following)
                turn.set_result(None)
