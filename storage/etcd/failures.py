"""Translates errors of etcd calls to the port's errors.

Source: ``go.etcd.io/etcd/api/v3/v3rpc/rpctypes``. Unlisted ones count as outages.
"""

from __future__ import annotations

from storage.grpc.calls import DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, UNAVAILABLE, RpcError, status_name
from storage.port import Compacted, FutureRevision, StorageError, TooLarge, Unavailable

INVALID_ARGUMENT = 3
OUT_OF_RANGE = 11

_MEANINGS: tuple[tuple[int, str, type[StorageError]], ...] = (
    (OUT_OF_RANGE, "future revision", FutureRevision),
    (INVALID_ARGUMENT, "too large", TooLarge),
    (INVALID_ARGUMENT, "too many operations", TooLarge),
    (RESOURCE_EXHAUSTED, "larger than max", TooLarge),  # from the gRPC server in front of etcd, or our own limit
)


def translated(error: RpcError, doing: str) -> StorageError:
    """Return the storage port's error for etcd's ``error`` while ``doing``; Unavailable for an unknown one."""
    if error.status == OUT_OF_RANGE and "compacted" in error.message:
        return Compacted()
    for known, part, meaning in _MEANINGS:
        if error.status == known and part in error.message:
            return meaning(f"{doing}: {error.message}")
    return Unavailable(f"{doing}: {status_name(error.status)}: {error.message}")


def is_outage(error: RpcError) -> bool:
    """Return whether etcd was unavailable or late: another endpoint, or a later try, may succeed."""
    return error.status in (UNAVAILABLE, DEADLINE_EXCEEDED)
