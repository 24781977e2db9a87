"""Connect to a host with several addresses: the first to answer wins (happy eyeballs, RFC 8305)."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, Protocol, TypeVar

STAGGER_SECONDS: Final = 0.25


class Abortable(Protocol):
    """Result of dialling an address."""

    def abort(self) -> None:
        """Close the connection at once, because another address won."""


_Made = TypeVar("_Made", bound=Abortable)


async def addresses(host: str, port: int) -> list[str]:
    """Return a host's addresses, alternating between IPv4 and IPv6, the system's preferred first. Raises gaierror."""
    try:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        except socket.gaierror:  # a name: ask the resolver
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except ValueError as error:  # such as a label that is too long
        raise socket.gaierror(socket.EAI_NONAME, str(error)) from error
    return by_turns(found)


def by_turns(found: Sequence[tuple[int, int, int, str, tuple[Any, ...]]]) -> list[str]:
    """Return ``getaddrinfo``'s addresses, alternating between families."""
    preferred = [str(address[0]) for family, *_, address in found if family == found[0][0]]
    others = [str(address[0]) for family, *_, address in found if family != found[0][0]]
    return [each for pair in itertools.zip_longest(preferred, others) for each in pair if each is not None]


async def first(given: list[str], dial: Callable[[str], Awaitable[_Made]]) -> _Made:
    """Return the first result of ``dial`` for one of the ``given`` addresses, which must not be empty; abort later connections.

    Dials the next address when one is slow or fails. Raises the last OSError.
    """
    if len(given) == 1:
        return await dial(given[0])
    made: list[_Made] = []
    failures: list[OSError] = []

    async def attempt(address: str) -> None:
        try:
            made.append(await dial(address))
        except OSError as error:
            failures.append(error)

    try:
        async with asyncio.TaskGroup() as tasks:
            await _begin((tasks.create_task(attempt(each)) for each in given), made)
    except BaseException:  # even if cancelled
        _abort(made)
        raise
    if not made:
        raise failures[-1]
    _abort(made[1:])
    return made[0]


async def _begin(attempts: Iterable[asyncio.Task[None]], made: list[_Made]) -> None:
    pending: set[asyncio.Task[None]] = set()
    for each in attempts:
        _, pending = await asyncio.wait({*pending, each}, timeout=STAGGER_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if made:
            break
    while pending and not made:
        _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
    for each in pending:
        each.cancel()


def _abort(made: list[_Made]) -> None:
    for each in made:
        each.abort()
