"""What gRPC raises, in the words of the port: translated here and nowhere else.

etcd's errors: ``go.etcd.io/etcd/api/v3/v3rpc/rpctypes``. What is not listed is an outage to the caller: it can only try again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import grpc
import grpc.aio

from storage.port import Compacted, FutureRevision, StorageError, TooLarge, Unavailable

# (code, part of the message) -> what it means; the message decides, because etcd uses one code for several errors.
_MEANINGS: tuple[tuple[grpc.StatusCode, str, type[StorageError]], ...] = (
    (grpc.StatusCode.OUT_OF_RANGE, "future revision", FutureRevision),
    (grpc.StatusCode.INVALID_ARGUMENT, "too large", TooLarge),
    (grpc.StatusCode.INVALID_ARGUMENT, "too many operations", TooLarge),
    (grpc.StatusCode.RESOURCE_EXHAUSTED, "larger than max", TooLarge),  # from the gRPC server in front of etcd, or from our own limit
)


def translated(error: grpc.aio.AioRpcError, doing: str) -> StorageError:
    """Return the port's error for ``error``, which happened while ``doing``."""
    code, details = error.code(), error.details() or ""
    if code is grpc.StatusCode.OUT_OF_RANGE and "compacted" in details:
        return Compacted()
    for known, part, meaning in _MEANINGS:
        if code is known and part in details:
            return meaning(f"{doing}: {details}")
    return Unavailable(f"{doing}: {code.name}: {details}")


def is_outage(error: grpc.aio.AioRpcError) -> bool:
    """Say whether another endpoint, or the same one later, may do better."""
    return error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


@contextmanager
def closing_is_unavailable(doing: str) -> Iterator[None]:
    """Turn the CancelledError that gRPC raises in calls of a closed channel into Unavailable; a cancelled caller stays cancelled."""
    try:
        yield
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise Unavailable(f"{doing}: the connection was closed") from None
