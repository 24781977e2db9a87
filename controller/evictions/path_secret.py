"""The secret in the URL path of eviction reviews, as the webhook configuration has it."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Callable
from typing import Final

from apiserver.apis.core.resources import VALIDATING_WEBHOOK_CONFIGURATIONS
from apiserver.apis.meta import errors
from apiserver.client.rest import Client, TransportError
from controller.evictions.webhook import NAME, secret_of

FRESH_SECONDS: Final = 60.0
PREVIOUS_SECONDS: Final = 60.0
LOOKUP_SECONDS: Final = 2.0


class PathSecret:
    """Checks the secret of eviction reviews."""

    def __init__(self, client: Client, elapsed: Callable[[], float] = time.monotonic, name: str = NAME) -> None:
        self._client = client
        self._elapsed = elapsed
        self._name = name
        self._present = ""
        self._previous = ""
        self._previous_until = float("-inf")
        self._read = float("-inf")
        self._looked = float("-inf")
        self._looking = asyncio.Lock()

    async def holds(self, given: str) -> bool:
        """Return whether ``given`` is the configuration's secret, read at most every ``LOOKUP_SECONDS``, or was in the last minute.

        False if it is to be read and cannot.
        """
        if not self._is_known(given):
            async with self._looking:
                if not self._is_known(given) and self._elapsed() - self._looked >= LOOKUP_SECONDS:
                    await self._look()
        return self._is_known(given)

    def _is_known(self, given: str) -> bool:
        now = self._elapsed()
        if now - self._read >= FRESH_SECONDS:
            return False
        return _same(given, self._present) or (now < self._previous_until and _same(given, self._previous))

    async def _look(self) -> None:
        self._looked = self._elapsed()
        try:
            found = secret_of(await self._client.get(VALIDATING_WEBHOOK_CONFIGURATIONS, self._name))
        except errors.NotFound:
            found = ""
        except (errors.StatusError, TransportError):
            return
        self._read = self._elapsed()
        if found != self._present:
            self._previous, self._previous_until = self._present, self._read + PREVIOUS_SECONDS
            self._present = found


def _same(given: str, secret: str) -> bool:
    return bool(secret) and hmac.compare_digest(given.encode(errors="replace"), secret.encode())
