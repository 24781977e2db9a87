"""Requests of many users for many objects, for the varied rows.

The load generator sends one request per line of a file. The front proxy's certificate lets each name its user:

- a request is for one of 10,000 random objects, from its owner among 100 users, with the right by their group
- one request in twenty is from a new user
- one in two has a ``traceparent``

Both servers cache 8,192 reviews (``tests.reference_server.servers.VARIED``): in the long run, four in five.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from benchmarks.api.operations import MANY
from tests.reference_server.certificates import USERS

COUNT: Final = 100
NEWCOMERS: Final = 0.05
TRACED: Final = 0.5
LENGTH: Final = 60_000
"""More requests than a server answers in a sample."""


def requests(seed: str) -> Iterator[str]:
    """Yield a sample's requests, a line each: an object's number and header fields; equal seeds give equal requests."""
    draw = random.Random(seed)
    for count in range(LENGTH):
        number = draw.randrange(MANY)
        user = f"{seed}-{count:05}" if draw.random() < NEWCOMERS else owner(number)
        fields = identity(user)
        if draw.random() < TRACED:
            fields.append(f"traceparent: 00-{draw.getrandbits(128):032x}-{draw.getrandbits(64):016x}-01")
        yield "\t".join([str(number), *fields])


def introductions() -> Iterator[str]:
    for number in random.Random("introductions").sample(range(MANY), MANY):
        yield "\t".join([str(number), *identity(owner(number))])


def owner(number: int) -> str:
    return f"user-{number * COUNT // MANY:02}"


def identity(user: str) -> list[str]:
    return [f"X-Remote-User: {user}", f"X-Remote-Group: {USERS}", "X-Remote-Group: system:authenticated"]


def write(directory: Path, name: str, lines: Iterable[str]) -> Path:
    path = directory / f"{name}.requests"
    if not path.exists():
        directory.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines))
    return path
