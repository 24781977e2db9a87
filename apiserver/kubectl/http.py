"""HTTP requests of the plugin. It loads aiohttp, which takes as long as all else: import it where a request is sent."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any, Final

import aiohttp

from apiserver.kubectl import messages
from apiserver.kubectl.access import Access

FAILURES: Final = (aiohttp.ClientError, OSError, TimeoutError, ValueError)
"""Exceptions of a request; ValueError: a name that IDNA cannot encode, or an answer beyond its limit."""
CONNECT_SECONDS: Final = 15
TIMEOUT_SECONDS: Final = 60
MAX_BODY_BYTES: Final = 16 << 20


async def send(
    access: Access,
    method: str,
    path: str,
    *,
    params: Mapping[str, str] | None = None,
    body: Any = None,  # noqa: ANN401  JSON
) -> tuple[int, bytes, list[str]]:
    """Send one request; return status, body and the texts of its warnings. Raises ``FAILURES``."""
    async with _answer(access, method, path, TIMEOUT_SECONDS, params=params, json=body) as response:
        raw = await _body(response.content)
        return response.status, raw, messages.of_warnings(response.headers.getall("Warning", ()))


async def lines(
    access: Access, path: str, params: Mapping[str, str], *, seconds: float, max_line_bytes: int
) -> AsyncGenerator[bytes, None]:
    """Yield the lines of an answer with status 200 as they arrive; none for another status. Raises ``FAILURES``."""
    async with _answer(access, "GET", path, seconds, params=params, buffer_bytes=max_line_bytes) as response:
        if response.status == 200:
            async for line in response.content:
                yield line


@contextlib.asynccontextmanager
async def _answer(
    access: Access,
    method: str,
    path: str,
    seconds: float,
    *,
    buffer_bytes: int = 1 << 16,
    **given: Any,  # noqa: ANN401  aiohttp's arguments
) -> AsyncIterator[aiohttp.ClientResponse]:
    timeout = aiohttp.ClientTimeout(total=seconds, connect=CONNECT_SECONDS)
    async with (
        aiohttp.ClientSession(timeout=timeout, headers=list(access.headers), trust_env=True, read_bufsize=buffer_bytes) as session,
        session.request(
            method,
            access.server + path,
            ssl=access.tls or False,
            server_hostname=access.server_hostname,
            proxy=access.proxy,
            allow_redirects=False,
            **given,
        ) as response,
    ):
        yield response


async def _body(content: aiohttp.StreamReader) -> bytes:
    raw = bytearray()
    async for piece in content.iter_any():
        raw += piece
        if len(raw) > MAX_BODY_BYTES:
            raise ValueError(f"the response is larger than {MAX_BODY_BYTES >> 20} MiB")
    return bytes(raw)
