"""Send reviews to kube-apiserver with a time limit, retries and metrics.

As ``webhook.WithExponentialBackoff`` with ``options.DefaultAuthWebhookRetryBackoff``: 500 ms, growing by half, five
tries of ten seconds, after connection failures and codes that ask for it. A try that times out is the last one, as in Go: repeated
reviews would keep a slow kube-apiserver slow.
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


class Unanswered(TransportError):
    """kube-apiserver did not answer a try in time."""


Answered = Callable[[str, float], None]
"""Called with the code (``<error>``: no answer) and every try's seconds."""


def uncounted(code: str, seconds: float) -> None:
    """Ignore a try's result."""
    del code, seconds


async def ask(
    client: Client,
    resource: Resource,
    review: Object,
    answered: Answered,
    *,
    pause_seconds: float = FIRST_PAUSE_SECONDS,
    try_seconds: float = TRY_SECONDS,
) -> Object:
    """Create a review; return it with kube-apiserver's answer. Retries after growing pauses.

    Raises the last try's StatusError or TransportError: Unanswered after ``try_seconds`` of one try, without a further one.
    """
    for attempt in range(1, TRIES + 1):
        try:
            return await _once(client, resource, review, answered, try_seconds)
        except Unanswered:
            raise
        except (StatusError, TransportError) as error:
            if attempt == TRIES or (isinstance(error, StatusError) and error.code not in _AGAIN):
                raise
        await asyncio.sleep(pause_seconds * (1 + random.uniform(0, _JITTER)))  # noqa: S311 - no secret
        pause_seconds *= _FACTOR
    raise AssertionError  # unreachable


async def _once(client: Client, resource: Resource, review: Object, answered: Answered, seconds: float) -> Object:
    began, code = time.perf_counter(), "<error>"
    try:
        async with asyncio.timeout(seconds):
            answer = await client.create(resource, review)
        code = "201"
    except StatusError as error:
        code = str(error.code)
        raise
    except TimeoutError:
        raise Unanswered(f"{resource.plural}: no answer within {seconds:g} seconds") from None
    else:
        return answer
    finally:
        answered(code, time.perf_counter() - began)
