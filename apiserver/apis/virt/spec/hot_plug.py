"""Disks, and media of CD-ROM drives, that a running guest gets and loses (``docs/decisions/disks.md``).

virt-controller makes an *attachment pod* with the claim of a disk that only the desired form has, and records it in
``status.volumeStatus``. In this write, virt-api copies the disk to the running form, and locks the claim; virt-handler then attaches it. A
removed disk stays in the running form until the guest gave it back.

Another medium takes two steps, with an empty drive in between.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple

from apiserver.apis.meta.objects import Object, name_of
from apiserver.apis.virt.hardware import disk_imports, disks, given, plugin_disks
from apiserver.apis.virt.hardware.given import Domain
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.places import layout, names
from apiserver.apis.virt.spec import running

FIELD: Final = "volumeStatus"
DISK: Final = "disk"
"""In ``status.domain.liveChanges`` of a guest that takes disks."""
OVERLAY: Final = "disk.overlay"
"""The same for blank disks, and for those over images and claims (``ephemeral``)."""
BLOCK: Final = "disk.block"
"""The same for disks on claims that are block devices."""
MEDIUM: Final = "disk.medium"
"""The same for drives that take media."""
KINDS: Final = (DISK, BLOCK, OVERLAY, MEDIUM)
BUSES: Final = ("virtio", "scsi")
"""Buses of disks that a running guest can get."""
PENDING: Final = "Pending"
ATTACHED_TO_NODE: Final = "AttachedToNode"
"""Phases of a volume; the names are KubeVirt's."""
CLAIM_NOT_FOUND: Final = "ClaimNotFound"
CLAIM_TERMINATING: Final = "ClaimTerminating"
"""Reasons of a volume that waits for a claim."""
NEEDS_RESTART: Final = "VolumeModeBlock"
"""Only the next start can use the claim."""
POD_NOT_RUNNING: Final = "PodNotRunning"
POD_SLOW: Final = "ContainerCreating"
MIGRATING: Final = "Migrating"
"""Reasons of a volume that waits for its pod, if that is slow too, or for a migration's end."""


class AttachmentPod(NamedTuple):
    """The pod that mounts a hot-plugged disk's claim or image for the guest."""

    name: str
    uid: str


class Mount(NamedTuple):
    """A directory ``source`` of a disk's attachment pod, and its place in the guest's pod: ``name`` below ``parent``."""

    source: str
    parent: str
    name: str
    read_only: bool


def is_pluggable(disk: Mapping[str, Any]) -> bool:
    """Return whether a running guest can get this disk of ``disks.defaulted``, or a drive this medium.

    The disk must be blank, or on a claim or container image, and on a bus of ``BUSES``, without ``bootOrder`` and own I/O thread.
    """
    if disks.is_drive(disk):
        return bool(content_of(disk))
    return (
        bool(content_of(disk))
        and disk["device"] == "disk"
        and disk["target"]["bus"] in BUSES
        and not disk.get("bootOrder")
        and not disk.get("dedicatedIOThread")
    )


def content_of(disk: Mapping[str, Any]) -> str:
    """Return what a disk's attachment pod mounts: the claim's name, or ``image:`` and a reference; "" for other disks.

    A disk with an import adds ``import:`` and its source, one with an overlay ``overlay:`` and its bytes.
    """
    found = f"image:{reference_of(disk)}" if disk.get("type") == disks.IMAGE else str(disks.claim_of(disk) or "")
    if (image := disk_imports.of(disk)) is not None:
        found = f"{found} import:{json.dumps(image, sort_keys=True)}"
    return f"{found} overlay:{disks.overlay_bytes(disk)}".strip() if disks.is_overlaid(disk) else found


def reference_of(disk: Mapping[str, Any]) -> str:
    """Return the reference of a disk's container image, or ""."""
    return str((disk.get("source") or {}).get("reference") or "") if disk.get("type") == disks.IMAGE else ""


def directory_of(disk: Mapping[str, Any]) -> str:
    """Return the directory in the guest's pod below which a hot-plugged claim or image is mounted, under its disk's name."""
    return layout.IMAGES_DIRECTORY if disk.get("type") == disks.IMAGE else layout.DISKS_DIRECTORY


def mounts_of(disk: Mapping[str, Any]) -> Iterator[Mount]:
    """Yield what the guest's pod gets from a disk's attachment pod: the claim or image, if any, then the overlay's directory, if any."""
    name, is_overlaid = str(disk["name"]), disks.is_overlaid(disk)
    if disk.get("type") != disks.EMPTY:
        yield Mount(layout.ATTACHMENT_DIRECTORY, directory_of(disk), name, read_only=is_overlaid or bool(disk["readOnly"]))
    if is_overlaid:
        overlay = layout.overlay_directory(name)
        yield Mount(layout.ATTACHMENT_OVERLAY_DIRECTORY, layout.DISKS_DIRECTORY, overlay, read_only=False)


def is_supported(disk: Mapping[str, Any], changes: Collection[str]) -> bool:
    """Return whether ``changes`` (``liveChanges``) has ``MEDIUM`` for a drive, ``DISK`` for a claim without overlay, else ``OVERLAY``."""
    is_plain = disks.claim_of(disk) and not disks.is_overlaid(disk)
    return (MEDIUM if disks.is_drive(disk) else DISK if is_plain else OVERLAY) in changes


def changes_of(vm: Mapping[str, Any]) -> Collection[str]:
    """Return ``status.domain.liveChanges``: kinds of changes that virt-launcher makes without a restart."""
    return tuple(dig_vm(vm, "status", "domain", "liveChanges") or ())


def path_of(disk: str) -> str:
    """Return the path of a disk: ``spec.domain.devices.disks[NAME]``."""
    return f"spec.domain.devices.disks[{disk}]"


def added(vm: Mapping[str, Any]) -> tuple[Object, ...]:
    """Return the pluggable disks that the spec has and the guest lacks, and the guest's empty drives with the spec's media."""
    wanted, there = _by_name(vm)
    return tuple(each for name, each in wanted.items() if is_pluggable(each) and _is_new(each, there.get(name)))


def removed(vm: Mapping[str, Any]) -> tuple[Object, ...]:
    """Return the pluggable disks that the guest has and the spec lacks, and drives with the media to eject."""
    wanted, there = _by_name(vm)
    return tuple(each for name, each in there.items() if _is_old(each, wanted.get(name)))


def kept(vm: Mapping[str, Any]) -> tuple[Object, ...]:
    """Return the guest's pluggable disks and media that are not :func:`removed`, as it has them; also drives that the spec lacks."""
    wanted, there = _by_name(vm)
    return tuple(each for name, each in there.items() if is_pluggable(each) and not _is_old(each, wanted.get(name)))


def _is_new(disk: Object, runs: Object | None) -> bool:
    if not disks.is_drive(disk):
        return runs is None
    return runs is not None and disks.is_empty_drive(runs) and disks.without_medium(disk) == disks.without_medium(runs)


def _is_old(runs: Object, desired: Object | None) -> bool:
    if not disks.is_drive(runs):
        return desired is None and is_pluggable(runs)
    return (
        not disks.is_empty_drive(runs)
        and not plugin_disks.is_plugin(runs)
        and desired is not None
        and disks.medium_of(desired) != disks.medium_of(runs)
        and disks.without_medium(desired) == disks.without_medium(runs)
        and (disks.is_empty_drive(desired) or is_pluggable(desired))  # else it would be empty until the next start
    )


def entries(vm: Mapping[str, Any]) -> tuple[Object, ...]:
    """Return ``status.volumeStatus``."""
    return tuple(dig_vm(vm, "status", FIELD) or ())


def entry_of(vm: Mapping[str, Any], disk: str) -> Object | None:
    """Return a disk's entry in ``status.volumeStatus``, or None."""
    return next((each for each in entries(vm) if each.get("name") == disk), None)


def without_claims(vm: Mapping[str, Any]) -> tuple[Object, ...]:
    """Return the entries in ``status.volumeStatus`` that wait because the claim does not exist or is being deleted."""
    return tuple(each for each in entries(vm) if each.get("reason") in (CLAIM_NOT_FOUND, CLAIM_TERMINATING))


def pod_name(vm: Object, disk: Mapping[str, Any]) -> str:
    """Return the name of a disk's attachment pod for the guest in its present pod."""
    return names.attachment_pod_name(name_of(vm), str(dig_vm(vm, "status", "podUID")), str(disk["name"]), content_of(disk))


def pod_of(vm: Object, disk: Mapping[str, Any]) -> AttachmentPod | None:
    """Return a disk's attachment pod in ``status.volumeStatus``; None without one for the guest's present pod and this content."""
    found = (entry_of(vm, str(disk["name"])) or {}).get("hotplugVolume") or {}
    pod = AttachmentPod(str(found.get("attachPodName") or ""), str(found.get("attachPodUID") or ""))
    return pod if pod.uid and pod.name == pod_name(vm, disk) else None


def attached(vm: Object) -> tuple[tuple[Object, AttachmentPod], ...]:
    """Return pairs of disk and attachment pod for the running form's disks that have one, whatever the spec has become."""
    runs = running.spec_of(vm)
    of_guest = () if runs.get("domainXML") else disks.defaulted(runs.get("domain") or {})
    found = ((each, pod_of(vm, each)) for each in of_guest)
    return tuple((disk, pod) for disk, pod in found if pod is not None)


def importing(vm: Object) -> tuple[tuple[Object, AttachmentPod], ...]:
    """Return those of :func:`attached` with a claim that the pod may fill with an image."""
    return tuple((disk, pod) for disk, pod in attached(vm) if disk_imports.of(disk) is not None)


def unfinished_imports(vm: Object) -> tuple[tuple[Object, AttachmentPod], ...]:
    """Return those of :func:`importing` with a disk that the guest does not have yet, by ``status.devices``."""
    devices = dig_vm(vm, "status", "devices") or ()
    there = {each.get("name") for each in devices if each.get("kind") == "disk" and not each.get("empty")}
    return tuple((disk, pod) for disk, pod in importing(vm) if disk["name"] not in there)


def import_barrier(vm: Object) -> str:
    """Return why the guest cannot migrate during an import, or "": the attachment pod and the disk would stay behind."""
    return next((f"disk {str(disk['name'])!r}: its image is being imported" for disk, _ in unfinished_imports(vm)), "")


def user_of_claim(vm: Mapping[str, Any], disk: Mapping[str, Any]) -> str:
    """Return the name of the guest's disk, perhaps ``disk`` itself, that already has the claim of ``disk``, or ""."""
    return _with_claim_of(disk, _by_name(vm)[1])


def user_of_identity(vm: Mapping[str, Any], disk: Mapping[str, Any]) -> str:
    """Return the name of another disk of the guest that already has the serial or World Wide Name of ``disk``, or ""."""
    return _with_identity_of(disk, _by_name(vm)[1])


def _with_claim_of(disk: Mapping[str, Any], there: Mapping[str, Object]) -> str:
    claim = disks.claim_of(disk)
    return next((name for name, each in there.items() if claim and disks.claim_of(each) == claim), "")


def _with_identity_of(disk: Mapping[str, Any], there: Mapping[str, Object]) -> str:
    own = _identity(disk)
    return next((name for name, each in there.items() if name != disk["name"] and own & _identity(each)), "")


def _identity(disk: Mapping[str, Any]) -> set[str]:
    return {f"serial {disk.get('serial') or ''}", f"wwn {str(disk.get('wwn') or '').lower()}"} - {"serial ", "wwn "}


def record(vm: Object) -> None:
    """Add to ``status.running``, in place, new disks with a recorded attachment pod.

    One with the claim, serial or World Wide Name of another disk of the guest waits.
    """
    ready, there = (each for each in added(vm) if pod_of(vm, each) is not None), _by_name(vm)[1]
    coming = [str(each["name"]) for each in ready if not (_with_claim_of(each, there) or _with_identity_of(each, there))]
    if coming:
        take(vm, coming)


def take(vm: Object, changed: Collection[str]) -> None:
    """Change the disks of these names in ``status.running`` to the spec's, in place.

    A drive with another medium is then empty. If ``status.running`` then equals the spec, it is removed.
    """
    runs, ejected = vm["status"][running.RUNNING], [str(each["name"]) for each in removed(vm)]
    desired = _without_media(vm["spec"]["domain"], ejected)
    running.set_domain(vm, with_disks(runs.get("domain") or {}, desired, changed))


def with_added(vm: Mapping[str, Any]) -> Object:
    """Return a copy of the machine; its ``status.running`` also has the :func:`added` disks that virt-launcher can plug."""
    changes, runs = changes_of(vm), running.domains_of(vm)[1]
    if not (found := [str(each["name"]) for each in added(vm) if is_supported(each, changes)]):
        return dict(vm)
    form = {**running.spec_of(vm), "domain": with_disks(runs, vm["spec"]["domain"], found)}
    return {**vm, "status": {**vm["status"], running.RUNNING: form}}


def live(vm: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of those :func:`added` and :func:`removed` disks that virt-launcher can plug or unplug without a restart."""
    waits = {each.get("name") for each in entries(vm) if each.get("reason") == NEEDS_RESTART}
    changes = changes_of(vm)
    found = (each for each in (*added(vm), *removed(vm)) if is_supported(each, changes))
    return tuple(str(each["name"]) for each in found if each["name"] not in waits)


def with_disks(runs: Domain, desired: Domain, changed: Collection[str]) -> Object:
    """Return a copy of ``runs`` that adds, removes or gives a medium to the ``changed`` disks as in ``desired``, in its order."""
    there, wanted = _written(runs), _written(desired)
    found = [_taken(there.get(name), disk, is_changed=name in changed) for name, disk in wanted.items() if name in there or name in changed]
    found += [disk for name, disk in there.items() if name not in wanted and name not in changed]
    return given.with_devices(runs, "disks", copy.deepcopy(found))


def _taken(runs: Object | None, desired: Object, *, is_changed: bool) -> Object:
    if runs is None or not is_changed:
        return desired if runs is None else runs
    return disks.without_medium(runs) | disks.medium_of(desired)


def _without_media(domain: Domain, drives: Collection[str]) -> Domain:
    written = (disks.without_medium(each) if name in drives else each for name, each in _written(domain).items())
    return {"devices": {"disks": list(written)}}


def _written(domain: Domain) -> dict[str, Object]:
    every = disks.defaulted(domain)
    written = (domain.get("devices") or {}).get("disks") or ()
    return {str(each["name"]): {"name": each["name"], **own} for each, own in zip(every, written, strict=True)}


def _by_name(vm: Mapping[str, Any]) -> list[dict[str, Object]]:
    return [{str(each["name"]): each for each in disks.defaulted(domain)} for domain in running.domains_of(vm)]
