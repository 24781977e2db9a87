"""One import from start to end."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from importer import claim, compression, conversion, device, formats, qcow2_end, sources
from importer.failures import EndUnknown, ImportFailed
from importer.plan import Plan
from importer.reporting import Reporter

SLACK: Final = 64 << 20
"""How many bytes a download may exceed the disk's size, for headers and padding."""


def run(plan: Plan, reporter: Reporter) -> None:
    """Import an image into an empty claim; do nothing if it has a disk.

    Raises:
        ImportFailed: the claim has no disk; a block device may be marked as unfinished, and partly written.
    """
    if plan.device is not None:
        _run_on_device(plan, plan.device, reporter)
        return
    if claim.has_disk(plan.directory):
        return
    with claim.errors_explained(plan.directory), claim.File(plan.directory / claim.PARTIAL) as disk:
        disk.lock()
        try:
            disk.begin()
            if not claim.has_disk(plan.directory):
                _fill(plan, disk, _limit(plan, claim.capacity(plan.directory)), reporter)
                claim.finish(plan.directory, disk)
        except claim.DiskExists:
            return
        finally:
            (plan.directory / claim.PARTIAL).unlink(missing_ok=True)
            (plan.directory / claim.SOURCE).unlink(missing_ok=True)


def _run_on_device(plan: Plan, path: Path, reporter: Reporter) -> None:
    with device.errors_explained():
        if device.has_disk(path):
            return
        with device.Device(path) as disk:
            disk.lock()
            limit = _limit(plan, disk.capacity)
            disk.begin()
            _fill(plan, disk, limit, reporter)
            disk.finish()


def _fill(plan: Plan, disk: claim.File | device.Device, limit: int, reporter: Reporter) -> None:
    expected = hashlib.new(plan.checksum[0]) if plan.checksum else None
    received = _received(sources.pieces(plan, reporter), expected, limit)
    head, received = _peek(received, compression.MAGIC_BYTES)
    head, pieces = _peek(compression.decompressed(received, head), formats.HEAD_BYTES)
    if compression.is_compressed(head) and plan.format != "raw":
        raise ImportFailed("the image is compressed twice")
    if formats.of(head, plan.format) == "raw":
        _write(disk, pieces, limit)
        _verify(plan, expected)
    elif isinstance(disk, device.Device):
        raise ImportFailed(
            "a claim that is a block device needs a raw image, uncompressed or compressed, because there is no space to convert qcow2"
        )
    else:
        _write_converted(plan, disk, pieces, limit, expected, reporter)
    if not disk.grown(plan.size or 0):
        raise ImportFailed("the image is empty")


def _write_converted(
    plan: Plan, disk: claim.File, pieces: Iterable[bytes], limit: int, expected: hashlib._Hash | None, reporter: Reporter
) -> None:
    path = plan.directory / claim.SOURCE
    with claim.File(path) as image:
        image.begin()
        end_unknown = _write_what_comes(image, pieces, claim.capacity(plan.directory))
        received = image.size
        image.grown(0)
        _verify(plan, expected)
        size = formats.qcow2_size(image.read(0, formats.HEAD_BYTES))
        if end_unknown is not None and not qcow2_end.is_whole(image.read, received):
            raise end_unknown
    if size > limit:
        raise ImportFailed(f"the image holds a disk of {size} bytes, and {_of_limit(plan, limit)}")
    reporter.converting()
    conversion.convert(plan.qemu_img, path, disk.path, -(-size // claim.BLOCK) * claim.BLOCK)
    path.unlink()


def _limit(plan: Plan, capacity: int) -> int:
    if plan.size is not None and plan.size > capacity:
        raise ImportFailed(f"size is {plan.size} bytes, but the claim has only {capacity}")
    return plan.size or capacity


def _of_limit(plan: Plan, limit: int) -> str:
    return f"size is {limit}" if plan.size else f"the claim has {limit}"


def _received(pieces: Iterable[bytes], expected: hashlib._Hash | None, limit: int) -> Iterator[bytes]:
    total = 0
    try:
        for piece in pieces:
            total += len(piece)
            if total > limit + SLACK:
                raise ImportFailed(f"the image has more than {limit} bytes")
            if expected is not None:
                expected.update(piece)
            yield piece
    except EndUnknown:
        if expected is None:  # otherwise the checksum proves completeness
            raise


def _peek(pieces: Iterable[bytes], length: int) -> tuple[bytes, Iterator[bytes]]:
    iterator, head = iter(pieces), b""
    while len(head) < length and (piece := next(iterator, b"")):
        head += piece
    return head, itertools.chain((head,), iterator)


def _write_what_comes(file: claim.File, pieces: Iterable[bytes], limit: int) -> EndUnknown | None:
    try:
        _write(file, pieces, limit)
    except EndUnknown as error:
        return error
    return None


def _write(file: claim.File | device.Device, pieces: Iterable[bytes], limit: int) -> None:
    for piece in pieces:
        if file.size + len(piece) > limit:
            raise ImportFailed(f"the image holds more than {limit} bytes, the limit by the claim's capacity or size")
        file.write(piece)


def _verify(plan: Plan, found: hashlib._Hash | None) -> None:
    if plan.checksum is None or found is None:
        return
    algorithm, digest = plan.checksum
    if found.hexdigest() != digest:
        raise ImportFailed(f"checksum mismatch: the file has {algorithm}:{found.hexdigest()}")
