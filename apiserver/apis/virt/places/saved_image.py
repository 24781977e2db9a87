"""The image of a suspended guest's memory, as virt-launcher reports and finds it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_WORDS: Final = re.compile(
    r"saved as ([A-Za-z0-9][A-Za-z0-9-]{0,62}), sha256:([0-9a-f]{64}), ([0-9]{1,18}) bytes"
    r"(?:, machine type ([A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)(?![A-Za-z0-9._-]))?"
)
"""The id is a uid (:func:`apiserver.apis.virt.places.forms.uid_errors`), the machine type a label's value, as in the status."""


@dataclass(frozen=True, slots=True)
class Image:
    """A saved image. ``digest``: SHA-256 in hexadecimal, without prefix."""

    id: str
    """The operation's id, also the file's name."""
    digest: str
    """It covers libvirt's header, the domain's XML and the copied disks."""
    size_bytes: int
    machine: str = ""
    """QEMU's machine type, which a resume needs; empty: unknown."""

    def __str__(self) -> str:
        machine = f", machine type {self.machine}" if self.machine else ""
        return f"saved as {self.id}, sha256:{self.digest}, {self.size_bytes} bytes{machine}"


def read(message: str) -> Image | None:
    """Return the image that a pod's untrusted termination message reports, or None."""
    found = _WORDS.search(message)
    return None if found is None else Image(found[1], found[2], int(found[3]), found[4] or "")


def file_of(uid: str, image_id: str) -> str:
    """Return the path of an image of the machine ``uid``, relative to its claim or to the images on the node's disk."""
    return f"{uid}/{image_id}"
