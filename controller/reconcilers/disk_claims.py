"""The claims of a machine (disks, file systems, firmware, images of its memory), and conflicts over them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from apiserver.apis.meta import quantity
from apiserver.apis.meta.objects import Object, dig, is_deleting, name_of, uid_of
from apiserver.apis.virt.hardware import disks, filesystems, firmware, host_disks
from apiserver.apis.virt.lifecycle import managed_save
from apiserver.apis.virt.spec import disk_uses, running
from apiserver.apis.virt.spec.described import domain_of

SIZE: Final = "source.create.size"


def claims_of(vm: Object) -> tuple[str, ...]:
    """Return the names of all claims of the machine's running form, without duplicates, those of disks first."""
    domain = domain_of(vm)
    of_disks = [name for each in disks.defaulted(domain) if (name := disks.claim_of(each))]
    return tuple(dict.fromkeys(filter(None, (*of_disks, *_of_filesystems(domain), firmware.state_claim(domain), _for_images(vm)))))


def _for_images(vm: Object) -> str:
    return managed_save.claim_of(running.spec_of(vm))


def _of_filesystems(domain: Mapping[str, Any]) -> dict[str, bool]:
    return {claim: not each["readOnly"] for each in filesystems.defaulted(domain) if (claim := filesystems.claim_of(each))}


def missing(vm: Object, claims: Mapping[str, Object | None]) -> tuple[str, ...]:
    """Return the names of the machine's claims that do not exist."""
    return tuple(name for name in claims_of(vm) if claims.get(name) is None)


def being_deleted(vm: Object, claims: Mapping[str, Object | None]) -> tuple[str, ...]:
    """Return the names of the machine's claims that are being deleted, which must not be used."""
    return tuple(name for name in claims_of(vm) if (claim := claims.get(name)) is not None and is_deleting(claim))


def unbound(vm: Object, claims: Mapping[str, Object | None]) -> tuple[str, ...]:
    """Return ``name (phase)`` of each claim of the machine that is not bound. A missing claim or phase counts as bound."""
    found = ((name, str(dig(claims.get(name), "status", "phase") or "Bound")) for name in claims_of(vm))
    return tuple(f"{name} ({phase})" for name, phase in found if phase != "Bound")


def too_small(vm: Object, claims: Mapping[str, Object | None]) -> tuple[str, ...]:
    """Return a message for each blank disk that is larger than the bound claim it is created in."""
    found = []
    for each in disks.defaulted(domain_of(vm)):
        name = disks.claim_of(each)
        given = dig(claims.get(name), "status", "capacity", "storage") if name else None
        if given and 0 < _bytes(str(given)) < (size := disks.created_bytes(each)):
            found.append(f"disk {each['name']!r}: {SIZE} is {quantity.of_bytes(size)}, but PersistentVolumeClaim {name} has only {given}")
    return tuple(found)


def _bytes(capacity: str) -> int:
    try:
        return quantity.parse(capacity).bytes
    except ValueError:
        return 0


class InUse(NamedTuple):
    """Storage (``what``) that a machine needs, and the name of another machine, which uses it and so excludes the first."""

    what: str
    machine: str


class Claimed(NamedTuple):
    """How a machine uses its claims; for each of ``filesystems``, whether it is written."""

    disks: Mapping[str, disk_uses.Use]
    filesystems: Mapping[str, bool]
    state: str
    """Claim with the firmware's state, or empty."""
    directory: str
    """Directory in ``state``."""


def servers_of(vm: Object) -> tuple[str, ...]:
    """Return a digest for each network disk of the machine, the same for each machine of the namespace with that disk."""
    return tuple(disk_uses.digest(same) for same in disk_uses.server_uses(domain_of(vm)))


def claimed(vm: Object) -> Claimed:
    """Return how the machine's disks, file systems and firmware use its claims."""
    return Claimed(disk_uses.uses(domain_of(vm)), _of_filesystems(domain_of(vm)), *_state(vm))


def contested(mine: Claimed, theirs: Claimed) -> tuple[str, ...]:
    """Return the names of claims that two machines cannot use at the same time.

    Two disks on a claim conflict unless they are shared (``apis.virt.spec.disk_uses``). The same directory of firmware state conflicts, as
    does a file system with a disk or with firmware state. File systems do not conflict with each other.
    """
    of_disks = [claim for claim, use in mine.disks.items() if claim in theirs.disks and disk_uses.clash(use, theirs.disks[claim])]
    of_both = (*of_disks, mine.state) if mine[2:] == theirs[2:] and mine.state else tuple(of_disks)
    return tuple(dict.fromkeys((*of_both, *_seen_as_files(mine, theirs), *_seen_as_files(theirs, mine))))


def clashes(claim: str, use: disk_uses.Use, other: Object) -> bool:
    """Return whether machine ``other`` uses the claim so that no disk of another machine may use it in the way ``use``."""
    mine = Claimed({claim: use}, {}, "", "")
    return bool(contested(mine, claimed(other)))


def claims_in_use(vm: Object, others: Iterable[Object]) -> tuple[InUse, ...]:
    """Return the machine's claims that conflict with ``others``, the other machines of its namespace, each with the other's name."""
    mine = claimed(vm)
    return tuple(InUse(claim, name_of(other)) for other in others for claim in contested(mine, claimed(other)))


def servers_in_use(vm: Object, others: Iterable[Object]) -> tuple[InUse, ...]:
    """Return the machine's network disks, by identity, that conflict with ``others``, as :func:`claims_in_use`."""
    mine = disk_uses.server_uses(domain_of(vm))
    return tuple(InUse(disk, name_of(other)) for other in others for disk in _contested_servers(mine, other)) if mine else ()


def _contested_servers(mine: Mapping[str, disk_uses.Use], other: Object) -> tuple[str, ...]:
    theirs = disk_uses.server_uses(domain_of(other))
    return tuple(same for same, use in mine.items() if same in theirs and disk_uses.clash(use, theirs[same]))


def files_of(vm: Object) -> tuple[str, ...]:
    """Return the paths of the node files that are disks of the machine."""
    return tuple(path for each in disks.defaulted(domain_of(vm)) if (path := host_disks.path_of(each)))


def contested_files(vm: Object, other: Object) -> tuple[str, ...]:
    """Return the paths of node files that are disks of both machines, unless both only read them. Ignores on which nodes they are."""
    mine, theirs = ({host_disks.path_of(each): bool(each["readOnly"]) for each in disks.defaulted(domain_of(one))} for one in (vm, other))
    return tuple(path for path, reads in mine.items() if path and path in theirs and not (reads and theirs[path]))


def _seen_as_files(mine: Claimed, theirs: Claimed) -> list[str]:
    """Return the file system claims in ``mine`` that are firmware state in ``theirs``, or a disk that one side writes."""
    return [
        claim
        for claim, writes in mine.filesystems.items()
        if claim == theirs.state or (claim in theirs.disks and (writes or theirs.disks[claim] != "reads"))
    ]


def _state(vm: Object) -> tuple[str, str]:
    domain = domain_of(vm)
    return firmware.state_claim(domain), firmware.state_directory(domain, uid_of(vm))


def without_directory(vm: Object, claims: Mapping[str, Object | None]) -> str:
    """Return the claim for firmware state if it is a block device; else empty."""
    claim, _ = _state(vm)
    return claim if claim and is_block(claims.get(claim)) else ""


def images_on_device(vm: Object, claims: Mapping[str, Object | None]) -> str:
    """Return the claim for images of the guest's memory if it is a block device; else empty."""
    claim = _for_images(vm)
    return claim if claim and is_block(claims.get(claim)) else ""


def filesystems_on_devices(vm: Object, claims: Mapping[str, Object | None]) -> tuple[str, ...]:
    """Return the claims of ``devices.filesystems`` that are block devices."""
    return tuple(claim for claim in _of_filesystems(domain_of(vm)) if is_block(claims.get(claim)))


def luns_without_device(vm: Object, claims: Mapping[str, Object | None]) -> tuple[str, ...]:
    """Return the names of LUN disks' claims that are missing or not block devices."""
    found = (disks.claim_of(each) for each in disks.defaulted(domain_of(vm)) if disks.is_lun(each))
    return tuple(claim for claim in found if claim is not None and not is_block(claims.get(claim)))


def is_block(claim: Object | None) -> bool:
    """Return whether the claim is a block device."""
    return bool(dig(claim, "spec", "volumeMode") == "Block")


def not_shared(vm: Object, claims: Mapping[str, Object | None]) -> tuple[str, ...]:
    """Return the names of claims that are not ReadWriteMany, or missing, which prevents migration."""
    return tuple(name for name in claims_of(vm) if "ReadWriteMany" not in (dig(claims.get(name), "spec", "accessModes") or ()))


def not_migratable(vm: Object, claims: Mapping[str, Object | None]) -> str:
    """Return why the machine's claims prevent live migration; else empty."""
    if not (lonely := not_shared(vm, claims)):
        return ""
    names = [f"disk {each['name']!r}" for each in disks.defaulted(domain_of(vm)) if disks.claim_of(each) in lonely]
    whose = f" ({', '.join(names)})" if names else ""
    return f"{in_short(lonely)}: two nodes cannot mount it at the same time{whose}"


def in_short(lonely: Iterable[str]) -> str:
    """Return a clause: these claims, of :func:`not_shared`, are not ReadWriteMany."""
    return f"PersistentVolumeClaim {', '.join(lonely)} is not ReadWriteMany"
