"""The hardware that ``spec.domain`` describes: what it leaves unsaid, filled in. Pure; nothing given is changed.

The lists of devices are atomic, and their elements are stored as their author wrote them: ``kubectl apply`` compares such a list as a
whole, and would take every default that the server wrote into an element for a change, at each apply. So nobody reads those lists but
through here, virt-api's own rules included, and no default is typed twice.

All functions take ``spec.domain`` as virt-api stores it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from apiserver.apis.meta import quantity
from apiserver.apis.meta.objects import Object

Domain = Mapping[str, Any]

MEMORY: Final = "512Mi"
MACHINE: Final = "q35"
QEMU: Final = "10.0"
"""The release of QEMU in virt-launcher's image: what it emulates can be asked for."""
_RELEASES: Final = (
    *(f"2.{minor}" for minor in range(4, 13)),
    *("3.0", "3.1"),
    *(f"{major}.{minor}" for major in range(4, 10) for minor in range(3)),
    QEMU,
)
MACHINES: Final = frozenset({"q35", "pc", "pc-q35-4.0.1", *(f"pc-{chipset}-{each}" for chipset in ("q35", "i440fx") for each in _RELEASES)})
"""Machine types for which a domain can be made: those with a PCI bus (``qemu-system-x86_64 -machine help``)."""
MACHINES_IN_WORDS: Final = (
    f"q35, pc, and their versions pc-q35-{_RELEASES[0]} to pc-q35-{QEMU} and pc-i440fx-{_RELEASES[0]} to pc-i440fx-{QEMU}"
)
IMAGE_PATH: Final = "disk/disk.img"
OVERLAY_SIZE_LIMIT: Final = "4Gi"
"""Default of ``source.sizeLimit`` of an image disk that the guest writes to: the cloud images of most distributions are smaller."""
COUNTS: Final = ("sockets", "cores", "threads")
LISTS: Final = ("disks", "interfaces", "graphics", "consoles")


def vcpus(domain: Domain) -> int:
    """Return sockets times cores times threads."""
    cpu = domain.get("cpu") or {}
    return math.prod(int(cpu.get(each) or 1) for each in COUNTS)


def memory_bytes(domain: Domain) -> int:
    """Return the guest's memory; fractions of a byte are rounded up.

    Raises:
        ValueError: what is given is no quantity.
    """
    return quantity.parse(str((domain.get("memory") or {}).get("guest", MEMORY))).bytes


def disks(domain: Domain) -> list[Object]:
    """Return ``devices.disks``, each with ``name``, ``device``, ``target.bus``, ``readOnly`` and, for an image, ``source.path``.

    An image that the guest writes to has ``source.sizeLimit``, too.
    """
    return [_disk(each, position) for position, each in enumerate(_given(domain, "disks", []))]


def interfaces(domain: Domain) -> list[Object]:
    """Return ``devices.interfaces``, each with ``type`` and ``model``; one where nothing is said."""
    return [{"type": "masquerade", "model": "virtio", **each} for each in _given(domain, "interfaces", [{"name": "default"}])]


def graphics(domain: Domain) -> list[Object]:
    """Return ``devices.graphics``; one display of type vnc where nothing is said."""
    return _given(domain, "graphics", [{"type": "vnc"}])


def consoles(domain: Domain) -> list[Object]:
    """Return ``devices.consoles``; one serial port where nothing is said."""
    return _given(domain, "consoles", [{"type": "pty"}])


def overlay_bytes(disk: Mapping[str, Any]) -> int:
    """Return how large an image disk may be that the guest writes to; 0 for a disk without an overlay.

    Args:
        disk: of what :func:`disks` returns.

    Raises:
        ValueError: what is given is no quantity.
    """
    limit = (disk.get("source") or {}).get("sizeLimit")
    return quantity.parse(str(limit)).bytes if limit is not None and is_overlaid(disk) else 0


def is_overlaid(disk: Mapping[str, Any]) -> bool:
    """Return whether what the guest writes to a disk goes to an overlay in its pod; ``disk`` is of what :func:`disks` returns."""
    return bool(disk.get("type") == "Image" and disk["device"] != "cdrom" and not disk["readOnly"])


def devices(domain: Domain) -> Object:
    """Return ``devices`` with all four lists."""
    return {"disks": disks(domain), "interfaces": interfaces(domain), "graphics": graphics(domain), "consoles": consoles(domain)}


def same(one: Domain, other: Domain) -> bool:
    """Whether both describe the same hardware, however much of it they leave unsaid: ``1024Mi`` is ``1Gi``."""
    return _meant(one) == _meant(other)


def _meant(domain: Domain) -> Object:
    meant = devices(domain)
    meant["disks"] = [_with_overlay_in_bytes(each) for each in meant["disks"]]
    return {**domain, "memory": memory_bytes(domain), "devices": meant}


def _with_overlay_in_bytes(disk: Object) -> Object:
    return {**disk, "source": {**disk["source"], "sizeLimit": overlay_bytes(disk)}} if is_overlaid(disk) else disk


def _given(domain: Domain, field: str, otherwise: list[Object]) -> list[Object]:
    given = (domain.get("devices") or {}).get(field)
    if given is None:
        return otherwise
    return [{key: value for key, value in each.items() if value is not None} for each in given]  # a null says nothing, as everywhere


def _disk(given: Object, position: int) -> Object:
    is_cdrom = given.get("device") == "cdrom"
    disk: Object = {"name": f"disk{position}", "device": "disk", "readOnly": is_cdrom, **given}
    disk["target"] = {"bus": "sata" if is_cdrom else "virtio", **(given.get("target") or {})}
    if given.get("type") == "Image":
        unsaid = {"path": IMAGE_PATH, "sizeLimit": OVERLAY_SIZE_LIMIT} if is_overlaid(disk) else {"path": IMAGE_PATH}
        disk["source"] = {**unsaid, **(given.get("source") or {})}
    return disk
