"""Requests of many users for many objects: the varied rows, which no memo of one client's repetitions answers.

What the load generator sends is a file, a line for each request: the number of the object, and header fields that the request has of its
own. Every server is sent the same file. The front proxy's certificate lets each request name its user:

- it is for one of 10,000 objects, at random, and of the one of 100 users whose object that is; each has a hundred, and their group has
  the right by RBAC
- one request in twenty is of somebody who never asked before
- one in two has a ``traceparent``

Who may do what is asked of kube-apiserver for each user, verb and object, and both servers remember 8,192 answers, for so long that no
answer grows too old meanwhile (``tests.twin.servers.VARIED``). Each user asks for each of its objects once before samples are taken. So
four in five of the users' reviews are remembered in the long run, and the share is the same for a server that takes longer.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from benchmarks.api.operations import MANY
from tests.twin.certificates import USERS

COUNT: Final = 100
"""Of users."""
NEWCOMERS: Final = 0.05
TRACED: Final = 0.5
LENGTH: Final = 60_000
"""More than any server answers in a sample: none comes twice."""


def requests(seed: str) -> Iterator[str]:
    """Draw the requests of a sample; with the same seed the same ones."""
    draw = random.Random(seed)
    for count in range(LENGTH):
        number = draw.randrange(MANY)
        user = f"{seed}-{count:05}" if draw.random() < NEWCOMERS else owner(number)
        fields = identity(user)
        if draw.random() < TRACED:
            fields.append(f"traceparent: 00-{draw.getrandbits(128):032x}-{draw.getrandbits(64):016x}-01")
        yield "\t".join([str(number), *fields])


def introductions() -> Iterator[str]:
    """Draw requests by which every user asks for each of its objects once."""
    for number in random.Random("introductions").sample(range(MANY), MANY):
        yield "\t".join([str(number), *identity(owner(number))])


def owner(number: int) -> str:
    """Return the user who asks for an object."""
    return f"user-{number * COUNT // MANY:02}"


def identity(user: str) -> list[str]:
    """Return the front proxy's header fields for a user, as the aggregator writes them."""
    return [f"X-Remote-User: {user}", f"X-Remote-Group: {USERS}", "X-Remote-Group: system:authenticated"]


def write(directory: Path, name: str, lines: Iterable[str]) -> Path:
    """Write requests to a file, unless it is there; return its path."""
    path = directory / f"{name}.requests"
    if not path.exists():
        directory.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines))
    return path
