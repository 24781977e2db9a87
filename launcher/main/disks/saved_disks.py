"""Copies of the disks that were made in the pod, with the image of a suspended guest.

The form is that of :mod:`launcher.protocol.made_disks`. The image's digest covers the first line, which has the disks' digests.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from launcher.main.disks import made_disks
from launcher.main.disks.saved_images import DISKS, ImageUnusable, open_own
from launcher.protocol.made_disks import MAX_LINE_BYTES, decode, encode, offer_of, unsuitable
from launcher.protocol.reading import ProtocolError


def save(image: Path, names: Sequence[str]) -> None:
    """Copy these made disks into a new file next to the image, and sync the file; without any, make none. Raises OSError."""
    if not names:
        return
    contents = [made_disks.read(each) for each in names]
    descriptor = os.open(image.with_suffix(DISKS), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        for each in (encode(offer_of(names, contents)), *contents):
            file.write(each)
        file.flush()
        os.fsync(file.fileno())


def restore(image: Path, names: Sequence[str]) -> None:
    """Replace the disks ``names`` that this pod made by the copies next to the image; after an error, some may be replaced.

    Raises OSError, also without the file of copies; ImageUnusable if the copies were changed, or are not exactly these disks.
    """
    if not names:
        return
    with os.fdopen(open_own(image.with_suffix(DISKS)), "rb") as file:
        try:
            offer = decode(file.readline(MAX_LINE_BYTES))
        except ProtocolError as error:
            raise ImageUnusable(f"the disks of the image {image.name}: {error}") from error
        if why := unsuitable(offer, names):
            raise ImageUnusable(f"the disks of the image {image.name}: {why}")
        for disk in offer.disks:
            content = file.read(disk.size)
            if hashlib.sha256(content).hexdigest() != disk.sha256:
                raise ImageUnusable(f"the disk {disk.name!r} of the image {image.name} was changed")
            made_disks.replace(disk.name, content)
