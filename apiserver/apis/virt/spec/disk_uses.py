"""Uses of claims by machines, and which machines may have one at once. Pure.

A claim that a guest writes to as a disk is its machine's alone: two guests that know nothing of each other destroy a file system. Guests
that only read share it, and so do machines that say ``shareable``, whose guests know of each other; but not the ones with the others.

A claim that guests have as a shared file system is for sharing: the node's kernel, or the file system of several nodes, orders what they
write, as among pods. It is no disk of another machine meanwhile, and keeps no other machine's firmware, since a guest that writes files may
write those. The state of firmware and TPM is its machine's alone, in a directory of its own, of which a claim may hold many. What a guest
may only read as files destroys nothing, and is not held.

A disk of a server is held like a claim, within the machine's namespace, by what is the same of two disks that are surely one. Across
namespaces it is not: nobody has to own what they name, so a tenant could keep another one's machine off its disk. What a plugin sets up is
not held either: two machines that say the same to it may have two disks of it, which the plugin alone knows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

from apiserver.apis.virt.hardware import disk_imports, disks, filesystems, firmware, host_disks, network_disks
from apiserver.apis.virt.hardware.given import Domain

Use = Literal["writes", "reads", "shares"]
WRITES: Final = "writes"
ALONE: Final = ""
"""In place of a group: nobody else may hold it."""
_DISK: Final = "disk"
_FILES: Final = "files"
_STATE: Final = "state"
HOST: Final = "host"
"""Kind of what is the node's, and no namespace's."""
SERVER: Final = "server"
"""Kind of what a server has, as a namespace names it."""


class Lock(NamedTuple):
    """Lock that a machine holds while it has a guest."""

    what: str
    """Segments ``kind/claim`` and, of the state of firmware, ``/directory``: the claim is the second. Of a file of a node
    ``host/node/digest``, of a disk of a server ``server/digest``."""
    group: str
    """Machines of one group may hold it at once; ``ALONE``: nobody else may."""


def uses(domain: Domain) -> dict[str, Use]:
    """Return what the machine does with each claim that a disk of it names, by the claim's name."""
    return {claim: _use(each) for each in disks.defaulted(domain) if (claim := disks.claim_of(each))}


def server_uses(domain: Domain) -> dict[str, Use]:
    """Return what the machine does with each disk of a server, by the words that are the same for every disk that is surely this one."""
    return {same: _use(each) for each in disks.defaulted(domain) if (same := network_disks.identity(each))}


def locks(domain: Domain, uid: str, node: str = "") -> frozenset[Lock]:
    """Return all locks of a machine on claims of its namespace, disks of servers and files of its node; ``uid`` is its own."""
    return frozenset((*_locks(domain, uid), *_files_of_node(domain, node)))


def _files_of_node(domain: Domain, node: str) -> Iterator[Lock]:
    for each in disks.defaulted(domain):
        if path := host_disks.path_of(each):
            yield Lock(f"{HOST}/{node}/{digest(path)}", "reads" if each["readOnly"] else ALONE)


def digest(text: str) -> str:
    """Return what stands for a path, or the words for a disk of a server, in the name of what is held, of which it is one segment."""
    return hashlib.sha256(text.encode()).hexdigest()


def _locks(domain: Domain, uid: str) -> Iterator[Lock]:
    for claim, use in uses(domain).items():
        yield Lock(f"{_DISK}/{claim}", ALONE if use == WRITES else use)
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
    """Return whether two machines that do this with a claim, or a disk of a server, may not have it at once."""
    return mine != theirs or mine == WRITES


def _use(disk: Mapping[str, Any]) -> Use:
    if disk_imports.of(disk) is not None:
        return WRITES  # the pod does, whatever its guest does
    if disk.get("shareable"):
        return "shares"
    return "reads" if disk["readOnly"] or disks.is_overlaid(disk) else WRITES
