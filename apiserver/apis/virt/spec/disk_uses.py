"""How machines use claims, and which machines may share one (``docs/decisions/disks.md``).

A claim that a guest writes to as a disk belongs to one machine. Guests that only read may share it. Machines with ``shareable``, whose
guests coordinate, may share it with each other, but not with readers.

Machines may share a claim as a file system. Meanwhile it cannot be a disk or hold firmware state of another, because a guest that writes
files could change those. Read-only file systems need no lock.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

from apiserver.apis.virt.hardware import disk_imports, disks, filesystems, firmware, host_disks, network_disks
from apiserver.apis.virt.hardware.given import Domain

Use = Literal["writes", "reads", "shares"]
_STRICTEST: Final[tuple[Use, ...]] = ("writes", "shares", "reads")
WRITES: Final = "writes"
ALONE: Final = ""
"""Group of an exclusive lock."""
_DISK: Final = "disk"
_FILES: Final = "files"
_STATE: Final = "state"
HOST: Final = "host"
"""Kind of locks on the node's files, in all namespaces."""
SERVER: Final = "server"
"""Kind of locks on a server's disks, within a namespace."""


class Lock(NamedTuple):
    """A machine's lock on storage, ``what``, while it has a guest. Machines of one ``group`` share it, but not of ``ALONE``."""

    what: str
    """``kind/claim``, for firmware state followed by ``/directory``; ``host/node/digest`` for a node's file; ``server/digest`` for a
    server's disk."""
    group: str


def uses(domain: Domain) -> dict[str, Use]:
    """Return, by claim, the strictest use (``writes``, ``shares``, ``reads``) by the machine's disks."""
    found: dict[str, Use] = {}
    for each in disks.defaulted(domain):
        if claim := disks.claim_of(each):
            found[claim] = min(_use(each), found.get(claim, "reads"), key=_STRICTEST.index)
    return found


def server_uses(domain: Domain) -> dict[str, Use]:
    """Return the use of each network disk, by what identifies it on its server (:func:`network_disks.identity`)."""
    return {same: _use(each) for each in disks.defaulted(domain) if (same := network_disks.identity(each))}


def locks(domain: Domain, uid: str, node: str = "", image_claim: str = "") -> frozenset[Lock]:
    """Return all locks of a machine on claims, servers' disks and files of its ``node``.

    ``domain`` is of the running form. ``image_claim`` has the machine's memory images: no guest may write to it as a file system.
    """
    images = (Lock(f"{_FILES}/{image_claim}", _STATE),) if image_claim else ()
    return frozenset((*_locks(domain, uid), *_files_of_node(domain, node), *images))


def lock_of_disk(claim: str, use: Use) -> Lock:
    """Return the lock of a disk on a claim."""
    return Lock(f"{_DISK}/{claim}", ALONE if use == WRITES else use)


def _files_of_node(domain: Domain, node: str) -> Iterator[Lock]:
    for each in disks.defaulted(domain):
        if path := host_disks.path_of(each):
            yield Lock(f"{HOST}/{node}/{digest(path)}", "reads" if each["readOnly"] else ALONE)


def digest(text: str) -> str:
    """Return a path segment that identifies a path or a server's disk in a lock."""
    return hashlib.sha256(text.encode()).hexdigest()


def _locks(domain: Domain, uid: str) -> Iterator[Lock]:
    for claim, use in uses(domain).items():
        yield lock_of_disk(claim, use)
    for same, use in server_uses(domain).items():
        yield Lock(f"{SERVER}/{digest(same)}", ALONE if use == WRITES else use)
    for each in filesystems.defaulted(domain):
        if (claim := filesystems.claim_of(each) or "") and not each["readOnly"]:
            yield Lock(f"{_DISK}/{claim}", _FILES)
            yield Lock(f"{_FILES}/{claim}", _FILES)
    if claim := firmware.state_claim(domain):
        yield Lock(f"{_FILES}/{claim}", _STATE)
        yield Lock(f"{_STATE}/{claim}/{firmware.state_directory(domain, uid)}", ALONE)


def clash(mine: Use, theirs: Use) -> bool:
    """Return whether two machines' uses exclude each other: different ones, or both ``writes``."""
    return mine != theirs or mine == WRITES


def _use(disk: Mapping[str, Any]) -> Use:
    if disk_imports.of(disk) is not None:
        return WRITES  # the pod writes, whatever its guest does
    if disk.get("shareable"):
        return "shares"
    return "reads" if disk["readOnly"] or disks.is_overlaid(disk) else WRITES
