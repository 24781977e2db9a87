"""Limits of open streams on one node, where all virt-api's replicas meet: in total, per stream of a machine, and per user of that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple

from apiserver.apis.meta import errors
from apiserver.apis.meta.objects import NamespacedName
from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES

RETRY_SECONDS: Final = 5


@dataclass(frozen=True, slots=True)
class Limits:
    """virt-handler's flags that limit open streams; 0: no limit."""

    max_streams: int = 128
    max_streams_per_machine: int = 8
    """Per kind of stream. virt-launcher serves 16 viewers, and each takes memory of QEMU."""
    max_streams_per_machine_and_user: int = 4


DEFAULTS: Final = Limits()


@dataclass(frozen=True, slots=True)
class Wanted:
    """A requested stream."""

    machine: NamespacedName
    """For messages."""
    uid: str
    """Of the machine."""
    stream: str
    holder: str
    """virt-api's token for the user; empty: none."""
    share: int = 1
    """Factor of the limits per machine."""


def refusal(limits: Limits, wanted: Wanted, everyone: int, of_machine: int, of_holder: int) -> str:
    """Return why another stream exceeds a limit; else empty.

    The counts are of all open streams, of this kind to the same machine, and of these by the same user.
    """
    machine = f"to {wanted.stream} of virtual machine {wanted.machine}"
    for limit, count, of in (
        (limits.max_streams_per_machine_and_user * wanted.share, of_holder, f"of your streams {machine} are open"),
        (limits.max_streams_per_machine * wanted.share, of_machine, f"{machine} are open"),
        (limits.max_streams, everyone, "are open on its node"),
    ):
        if limit and count >= limit:
            return f"too many streams: {count} {of}, and {limit} is the limit; close one and try again"
    return ""


class _Share(NamedTuple):
    uid: str
    stream: str
    holder: str


class OpenStreams:
    """Counts the streams that are open now against the limits."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._open: Counter[_Share] = Counter()

    def __len__(self) -> int:
        return self._open.total()

    @contextmanager
    def one(self, wanted: Wanted) -> Iterator[None]:
        """Count a stream while the block runs. Raises TooManyRequests if it exceeds a limit."""
        share = _Share(wanted.uid, wanted.stream, wanted.holder)
        of_machine = sum(count for each, count in self._open.items() if (each.uid, each.stream) == (share.uid, share.stream))
        if why := refusal(self._limits, wanted, len(self), of_machine, self._open[share] if wanted.holder else 0):
            details = errors.Details(
                name=wanted.machine.name,
                group=VIRTUAL_MACHINES.group,
                kind=VIRTUAL_MACHINES.plural,
                retry_after_seconds=RETRY_SECONDS,
            )
            raise errors.TooManyRequests(why, details)
        self._open[share] += 1
        try:
            yield
        finally:
            self._open[share] -= 1
            if not self._open[share]:
                del self._open[share]
