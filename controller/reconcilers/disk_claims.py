"""The claims of a virtual machine, of its disks, file systems and firmware, and those of them that are missing. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from apiserver.apis.meta import quantity
from apiserver.apis.meta.objects import Object, dig, is_deleting, name_of, uid_of
from apiserver.apis.virt.hardware import disks, filesystems, firmware, host_disks
from apiserver.apis.virt.spec import disk_uses
from apiserver.apis.virt.spec.described import domain_of


def claims_of(vm: Object) -> tuple[str, ...]:
    """Return the names of all claims of the machine, those of its disks first, each once, in order."""
    domain = domain_of(vm)
    of_disks = [name for each in disks.defaulted(domain) if (name := disks.claim_of(each))]
    return tuple(dict.fromkeys(filter(None, (*of_disks, *_of_filesystems(domain), firmware.state_claim(domain)))))


def _of_filesystems(domain: Mapping[str, Any]) -> dict[str, bool]:
    """Return whether the guest may write to each claim that it has as a file system."""
    return {claim: not each["readOnly"] for each in filesystems.defaulted(domain) if (claim := filesystems.claim_of(each))}


def missing(vm: Object, claims: Mapping[str, Object | None]) -> tuple[str, ...]:
    """Return the claims that are absent."""
    return tuple(name for name in claims_of(vm) if claims.get(name) is None)


def going(vm: Object, claims: Mapping[str, Object | None]) -> tuple[str, ...]:
    """Return the claims that are being deleted: nobody may begin to use them."""
    return tuple(name for name in claims_of(vm) if (claim := claims.get(name)) is not None and is_deleting(claim))


def unbound(vm: Object, claims: Mapping[str, Object | None]) -> tuple[str, ...]:
    """Return the claims that have no volume, each with its phase; one whose phase nobody told yet is not called so."""
    found = ((name, str(dig(claims.get(name), "status", "phase") or "Bound")) for name in claims_of(vm))
    return tuple(f"{name} ({phase})" for name, phase in found if phase != "Bound")


def too_small(vm: Object, claims: Mapping[str, Object | None]) -> tuple[str, ...]:
    """Return what is said of each blank disk that is larger than the claim it is created in, where that has a volume."""
    found = []
    for each in disks.defaulted(domain_of(vm)):
        name = disks.claim_of(each)
        given = dig(claims.get(name), "status", "capacity", "storage") if name else None
        if given and 0 < _bytes(str(given)) < (size := disks.created_bytes(each)):
            found.append(
                f"disk {each['name']!r}: source.create.size is {quantity.of_bytes(size)}, PersistentVolumeClaim {name} has {given}"
            )
    return tuple(found)


def _bytes(capacity: str) -> int:
    """Return the bytes of a claim; 0 where what is said is no quantity: a driver of storage wrote it."""
    try:
        return quantity.parse(capacity).bytes
    except ValueError:
        return 0


class InUse(NamedTuple):
    """Storage that another machine uses."""

    what: str
    """A PersistentVolumeClaim, or a disk of a server."""
    machine: str


class Claimed(NamedTuple):
    """Uses that a machine makes of its claims."""

    disks: Mapping[str, disk_uses.Use]
    """Of those that disks of it name."""
    filesystems: Mapping[str, bool]
    """True for those file systems that the guest may write to."""
    state: str
    """The one that keeps the state of its firmware, or an empty name."""
    directory: str
    """Directory in ``state``."""


def servers_of(vm: Object) -> tuple[str, ...]:
    """Return what stands for each disk of a server that the machine has, within its namespace."""
    return tuple(disk_uses.digest(same) for same in disk_uses.server_uses(domain_of(vm)))


def claimed(vm: Object) -> Claimed:
    """Return what the machine does with its claims."""
    return Claimed(disk_uses.uses(domain_of(vm)), _of_filesystems(domain_of(vm)), *_state(vm))


def contested(mine: Claimed, theirs: Claimed) -> tuple[str, ...]:
    """Return the claims that two machines cannot have at a time.

    They have a disk of it that they do not share (``apis.virt.spec.disk_uses``), or the same directory for their firmware's state, or
    it is a file system of one of them and such a disk, or state, of the other. File systems are for sharing.
    """
    of_disks = [claim for claim, use in mine.disks.items() if claim in theirs.disks and disk_uses.clash(use, theirs.disks[claim])]
    of_both = (*of_disks, mine.state) if mine[2:] == theirs[2:] and mine.state else tuple(of_disks)
    return tuple(dict.fromkeys((*of_both, *_seen_as_files(mine, theirs), *_seen_as_files(theirs, mine))))


def claims_in_use(vm: Object, others: Iterable[Object]) -> tuple[InUse, ...]:
    """Return the claims that machines of its namespace keep the machine from."""
    mine = claimed(vm)
    return tuple(InUse(claim, name_of(other)) for other in others for claim in contested(mine, claimed(other)))


def servers_in_use(vm: Object, others: Iterable[Object]) -> tuple[InUse, ...]:
    """Return the disks of servers, likewise."""
    mine = disk_uses.server_uses(domain_of(vm))
    return tuple(InUse(disk, name_of(other)) for other in others for disk in _contested_servers(mine, other)) if mine else ()


def _contested_servers(mine: Mapping[str, disk_uses.Use], other: Object) -> tuple[str, ...]:
    """Return the disks of servers that another machine, of the same namespace, cannot have at a time with uses that are given."""
    theirs = disk_uses.server_uses(domain_of(other))
    return tuple(same for same, use in mine.items() if same in theirs and disk_uses.clash(use, theirs[same]))


def files_of(vm: Object) -> tuple[str, ...]:
    """Return the paths of the files of a node that are disks of the machine."""
    return tuple(path for each in disks.defaulted(domain_of(vm)) if (path := host_disks.path_of(each)))


def contested_files(vm: Object, other: Object) -> tuple[str, ...]:
    """Return the files of a node that both machines cannot have at a time if both are on it."""
    mine, theirs = ({host_disks.path_of(each): bool(each["readOnly"]) for each in disks.defaulted(domain_of(one))} for one in (vm, other))
    return tuple(path for path, reads in mine.items() if path and path in theirs and not (reads and theirs[path]))


def _seen_as_files(mine: Claimed, theirs: Claimed) -> list[str]:
    """Return the claims of which a machine has files, where one of these is a disk or the firmware's state of another one."""
    return [
        claim
        for claim, writes in mine.filesystems.items()
        if claim == theirs.state or (claim in theirs.disks and (writes or theirs.disks[claim] != "reads"))
    ]


def _state(vm: Object) -> tuple[str, str]:
    """Return the claim that keeps the state of the machine's firmware, or an empty name, and the directory in it."""
    domain = domain_of(vm)
    return firmware.state_claim(domain), firmware.state_directory(domain, uid_of(vm))


def without_directory(vm: Object, claims: Mapping[str, Object | None]) -> str:
    """Return the claim that shall keep the state of the machine's firmware and is a device, or an empty string."""
    claim, _ = _state(vm)
    return claim if claim and is_block(claims.get(claim)) else ""


def filesystems_on_devices(vm: Object, claims: Mapping[str, Object | None]) -> tuple[str, ...]:
    """Return the claims that shall be file systems of the guest and are devices."""
    return tuple(claim for claim in _of_filesystems(domain_of(vm)) if is_block(claims.get(claim)))


def luns_without_device(vm: Object, claims: Mapping[str, Object | None]) -> tuple[str, ...]:
    """Return the claims whose SCSI device the guest shall have and that are directories."""
    found = (disks.claim_of(each) for each in disks.defaulted(domain_of(vm)) if disks.is_lun(each))
    return tuple(claim for claim in found if claim is not None and not is_block(claims.get(claim)))


def is_block(claim: Object | None) -> bool:
    """Return whether the claim is a device in the pod instead of a directory."""
    return bool(dig(claim, "spec", "volumeMode") == "Block")


def not_shared(vm: Object, claims: Mapping[str, Object | None]) -> tuple[str, ...]:
    """Return the claims that two nodes cannot use at once, so that the guest cannot migrate."""
    return tuple(name for name in claims_of(vm) if "ReadWriteMany" not in (dig(claims.get(name), "spec", "accessModes") or ()))


def not_migratable(vm: Object, claims: Mapping[str, Object | None]) -> str:
    """Return why the machine's claims keep its guest from live migration, or an empty string. Nobody can change modes of access."""
    if not (lonely := not_shared(vm, claims)):
        return ""
    names = [f"disk {each['name']!r}" for each in disks.defaulted(domain_of(vm)) if disks.claim_of(each) in lonely]
    whose = f" ({', '.join(names)})" if names else ""
    return f"{in_short(lonely)}: two nodes cannot use it at once{whose}"


def in_short(lonely: Iterable[str]) -> str:
    """Return the same of these claims (:func:`not_shared`), to stand within a sentence."""
    return f"PersistentVolumeClaim {', '.join(lonely)} is not ReadWriteMany"
