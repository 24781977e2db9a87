"""The transfer of disks that virt-launcher made, from a migration's source to its target. No I/O.

The source connects to its ``layout.MIGRATION_MADE_DISKS_SOCKET``, which virt-handler relays to the target's. It sends an ``Offer`` as a
line of JSON, then the disks' bytes. The answer is ``ok``, or ``no`` and the reason, and the connection ends. The sides do not trust
each other.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from launcher.protocol import reading

MAX_LINE_BYTES: Final = 64 << 10
MAX_ANSWER_BYTES: Final = 512
MAX_DISK_BYTES: Final = 8 << 20
"""The largest has three Secrets of 1 MiB and all public keys."""
OK: Final = b"ok\n"
UNSENT: Final = "the disks that were made in the guest's pod did not reach the target"
"""Begins the message if the connection broke before libvirt began, or the target takes no such disks."""


@dataclass(frozen=True, slots=True)
class MadeDisk:
    """A disk's name, size in bytes, and digest in hexadecimal."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Offer:
    """The source's first line: announces the disks that it sends next, in this order."""

    disks: tuple[MadeDisk, ...]


def offer_of(names: Sequence[str], contents: Sequence[bytes]) -> Offer:
    """Return the offer that announces these disks: names, sizes and digests."""
    return Offer(tuple(MadeDisk(name, len(each), hashlib.sha256(each).hexdigest()) for name, each in zip(names, contents, strict=True)))


def encode(offer: Offer) -> bytes:
    """Return an offer as a line of JSON."""
    return json.dumps(asdict(offer), separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> Offer:
    """Return the offer in a line, or raise launcher.protocol.reading.ProtocolError."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise reading.ProtocolError(f"the offer of disks is not JSON: {type(error).__name__}") from error
    return reading.read(Offer, found, "offer")


def unsuitable(offer: Offer, names: Collection[str]) -> str:
    """Return why an offer does not have exactly the disks ``names``, each of 1 to ``MAX_DISK_BYTES`` bytes; empty if it does."""
    if sorted(each.name for each in offer.disks) != sorted(names):
        return "they are not the disks of this machine"
    large = [each.name for each in offer.disks if not 0 < each.size <= MAX_DISK_BYTES]
    return f"disk {large[0]!r} cannot be that large" if large else ""


def refusal(why: str) -> bytes:
    """Return the target's answer that refuses the disks: one line with the reason, shortened."""
    return b"no " + "".join(each for each in why if each.isprintable()).encode()[: MAX_ANSWER_BYTES - 8] + b"\n"


def reason(answer: bytes) -> str | None:
    """Return why the target refused the disks; empty if it took them; None if the answer says neither."""
    if answer == OK:
        return ""
    if not answer.startswith(b"no ") or not answer.endswith(b"\n"):
        return None
    return "".join(each for each in answer[3:].decode(errors="replace") if each.isprintable()) or "it gives no reason"
