"""Post audit events to a webhook."""

from __future__ import annotations

import asyncio
from typing import Final

from apiserver.apis.meta.errors import StatusError
from apiserver.client.rest import Client
from apiserver.client.transport import ExchangeFailed

_FACTOR: Final = 1.5


class Webhook:
    """Posts batches as ``EventList``; retries any failure with growing pauses (``--audit-webhook-initial-backoff``)."""

    TRIES: Final = 5

    def __init__(self, client: Client, *, backoff_seconds: float = 10.0) -> None:
        self._client = client
        self._backoff = backoff_seconds

    async def store(self, batch: list[str]) -> None:
        """Send a batch.

        Raises:
            OSError: all tries failed.
        """
        body = '{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":[' + ",".join(batch) + "]}"
        pause = self._backoff
        for attempt in range(1, self.TRIES + 1):
            try:
                with await self._client.stream("POST", "", data=body.encode()):
                    return
            except (StatusError, ExchangeFailed, TimeoutError, OSError) as error:
                if attempt == self.TRIES:
                    raise OSError(f"post audit events: {error}") from error
            await asyncio.sleep(pause)
            pause *= _FACTOR
