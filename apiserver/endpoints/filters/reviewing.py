"""Questions to kube-apiserver that a request waits for: bounded in time, repeated where that helps, counted.

As ``webhook.WithExponentialBackoff`` with ``options.DefaultAuthWebhookRetryBackoff``: 500 ms, half as much again each time, at most five
tries in all, ten seconds a try; repeated are failures of the connection and answers that ask for it.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Final

from apiserver.apis.meta.errors import StatusError
from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.resources import Resource
from apiserver.client.rest import Client, TransportError

TRIES: Final = 5
FIRST_PAUSE_SECONDS: Final = 0.5
_FACTOR: Final = 1.5
_JITTER: Final = 0.2
TRY_SECONDS: Final = 10.0
_AGAIN: Final = frozenset({429, 500, 502, 503, 504})

Answered = Callable[[str, float], None]
"""Called with the code (``<error>``: none came) and the seconds of every try."""


def uncounted(code: str, seconds: float) -> None:
    """Count nothing."""
    del code, seconds


async def ask(
    client: Client, resource: Resource, review: Object, answered: Answered, *, pause_seconds: float = FIRST_PAUSE_SECONDS
) -> Object:  # fmt: skip
    """Create a review and return it with its answer; ``pause_seconds`` before the second try.

    Raises:
        StatusError, TransportError: it was not answered, after all tries.
    """
    for attempt in range(1, TRIES + 1):
        try:
            return await _once(client, resource, review, answered)
        except (StatusError, TransportError) as error:
            if attempt == TRIES or (isinstance(error, StatusError) and error.code not in _AGAIN):
                raise
        await asyncio.sleep(pause_seconds * (1 + random.uniform(0, _JITTER)))  # noqa: S311 - no secret
        pause_seconds *= _FACTOR
    raise AssertionError  # the last try returns or raises


async def _once(client: Client, resource: Resource, review: Object, answered: Answered) -> Object:
    began, code = time.perf_counter(), "<error>"
    try:
        async with asyncio.timeout(TRY_SECONDS):
            answer = await client.create(resource, review)
        code = "201"
    except StatusError as error:
        code = str(error.code)
        raise
    except TimeoutError:
        raise TransportError(f"{resource.plural}: no answer within {TRY_SECONDS:g} seconds") from None
    else:
        return answer
    finally:
        answered(code, time.perf_counter() - began)
