"""Reads from ``spec.domainXML`` what pod, scheduler and node need."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from apiserver.apis.virt.domainxml import disks, grammar, parsing, rules, values
from apiserver.apis.virt.domainxml.domain import DOMAIN, REASONS
from apiserver.apis.virt.domainxml.grammar import Problem
from apiserver.apis.virt.domainxml.parsing import Node
from apiserver.apis.virt.hardware import io_threads, video

MIB: Final = 1 << 20
REMEMBERED: Final = 256
"""Cached documents, because each access to a machine reads its XML."""
_VRAM_MIB: Final = 16
"""Default memory of a video card; also the sizes of a qxl card."""
_QXL_MIB: Final = {"ram": 64, "vram": 64, "vgamem": 16}
_DEFAULT_CACHE_BYTES: Final = 1 << 30
"""QEMU's largest translation cache, unless ``<tb-cache>`` limits it (tcg/region.c)."""


@dataclass(frozen=True, slots=True)
class Disk:
    """A ``<disk>`` with a source."""

    name: str
    """The disk's next to the XML."""
    target: str
    """libvirt's name."""
    path: str
    """The element's."""
    is_block: bool
    format: str
    is_cached: bool
    """It uses the node's page cache."""
    is_read_only: bool


@dataclass(frozen=True, slots=True)
class Feature:
    """A ``<feature>`` of ``<cpu>``."""

    path: str
    """The element's."""
    name: str
    policy: str


@dataclass(frozen=True, slots=True)
class CPU:
    """``<cpu>``, as far as it depends on a node with KVM."""

    is_the_nodes: bool
    """The guest gets the node's processor: ``host-model``, ``host-passthrough``, ``maximum``, or a minimum model."""
    model: str
    """Empty: unspecified."""
    model_path: str
    features: tuple[Feature, ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """The parts of a domain's XML that our components use."""

    memory_bytes: int
    topology: tuple[int, int, int]
    """Sockets (times dies), cores, threads."""
    has_topology: bool
    machine: str
    type: str
    """``qemu``, ``kvm``, or the placeholder for the pod's accelerator."""
    uuid: str
    """A UUID, or the placeholder; empty: none."""
    firmware: str
    """``bios``, ``efi``, or ``secure`` (with Secure Boot)."""
    tpm: str
    """``none``, ``transient`` or ``persistent``."""
    page_size: str
    """A quantity; empty for ordinary pages."""
    disks: tuple[Disk, ...]
    networks: tuple[tuple[str, str], ...]
    """Interfaces next to the XML, and their MAC addresses in it."""
    has_serial: bool
    graphics: tuple[str, ...]
    device_bytes: int
    """Upper bound of the pod's memory for displays and threads."""
    cache_bytes: int
    """The emulator's translation cache."""
    cpu: CPU


def problems_of(text: str) -> tuple[Problem, ...]:
    """Return the problems of XML alone, without other fields; empty if valid."""
    found = _read(text)
    return found if isinstance(found, tuple) else ()


def read(text: str) -> Reading:
    """Return what our components use of XML, as a ``Reading``.

    Raises:
        Malformed: it is invalid; its first problem is the message.
    """
    return _sound(_read(text))


def read_uncached(text: str) -> Reading:
    """Return :func:`read`'s result without its cache.

    Raises:
        Malformed: as for :func:`read`.
    """
    return _sound(_judged(text))


def _sound(found: Reading | tuple[Problem, ...]) -> Reading:
    if isinstance(found, tuple):
        raise parsing.Malformed(str(found[0]))
    return found


def _judged(text: str) -> Reading | tuple[Problem, ...]:
    try:
        root = parsing.parse(text)
    except parsing.Malformed as error:
        place, _, problem = str(error).partition(": ")
        return (Problem(place, problem, isinstance(error, parsing.NotWellFormed)),)
    if root.name != "domain":
        return (Problem(root.path, "must be <domain>"),)
    found = grammar.problems(root, DOMAIN, REASONS) or rules.problems(root)
    return tuple(found) or _reading(root)


_read: Final = lru_cache(maxsize=REMEMBERED)(_judged)


def _reading(root: Node) -> Reading:
    devices = root.child("devices")
    if devices is None:
        raise parsing.Malformed("/domain/devices: is required")
    operating, serial = root.find("os", "type"), devices.all("serial")
    topology = root.find("cpu", "topology")
    return Reading(
        memory_bytes=rules.memory_bytes(root),
        topology=rules.topology(root),
        has_topology=topology is not None,
        machine=operating.get("machine") if operating is not None else "",
        type=root.get("type"),
        uuid=uuid.text if (uuid := root.child("uuid")) is not None else "",
        firmware=rules.firmware(root),
        tpm=_tpm(devices),
        page_size=rules.PAGE_SIZES.get(rules.page_bytes(root), ""),
        disks=tuple(disk for each in devices.all("disk") if (disk := _disk(each)) is not None),
        networks=tuple(_network(each) for each in devices.all("interface")),
        has_serial=any(each.child("source") is not None for each in serial),
        graphics=tuple(each.get("type") for each in devices.all("graphics")),
        device_bytes=sum(map(_video_bytes, devices.all("video"))) + io_threads.THREAD_BYTES * rules.io_thread_count(root),
        cache_bytes=_cache_bytes(root),
        cpu=_cpu(root),
    )


def _cpu(root: Node) -> CPU:
    """Return the guest's CPU. Defaults: ``mode`` custom, ``match`` exact, and QEMU's own model, which each node supports."""
    element, model = root.child("cpu"), root.find("cpu", "model")
    if element is None:
        return CPU(is_the_nodes=False, model="", model_path="", features=())
    is_custom = element.get("mode", "custom") == "custom"
    if not is_custom:  # its content is ignored
        model = None
    return CPU(
        is_the_nodes=not is_custom or (model is not None and element.get("match") == "minimum"),
        model=model.text if model is not None else "",
        model_path=model.path if model is not None else "",
        features=tuple(Feature(each.path, each.get("name"), each.get("policy")) for each in element.all("feature")),
    )


def _tpm(devices: Node) -> str:
    backend = devices.find("tpm", "backend")
    if backend is None:
        return "none"
    return "persistent" if backend.get("persistent_state") == "yes" else "transient"


def _disk(element: Node) -> Disk | None:
    source, target, driver = element.child("source"), element.child("target"), element.child("driver")
    if source is None or target is None:
        return None
    return Disk(
        name=values.name_in(source.get(disks.SOURCES[element.get("type")]), values.DISK),
        target=target.get("dev"),
        path=element.path,
        is_block=element.get("type") == "block",
        format=driver.get("type", "raw") if driver is not None else "raw",
        is_cached=driver is None or driver.get("cache") not in ("none", "directsync"),
        is_read_only=rules.is_read_only(element),
    )


def _network(element: Node) -> tuple[str, str]:
    target, mac = element.child("target"), element.child("mac")
    given = mac.get("address") if mac is not None else ""
    return (
        values.name_in(target.get("dev"), values.NETWORK) if target is not None else "",
        "" if values.name_in(given, values.MAC) else given,
    )


def _video_bytes(element: Node) -> int:
    model = element.child("model")
    if model is None:
        return 0
    match model.get("type"):
        case "none":
            return 0
        case "virtio":
            return video.VIRTIO_BYTES
        case "qxl":
            ram, vram, vgamem = (_card_bytes(model, each, default) for each, default in _QXL_MIB.items())
            return max(ram, 2 * vgamem) + vram + vgamem  # qxl_init_ramsize: ram holds at least two images
        case _:
            return _card_bytes(model, "vram", _VRAM_MIB)


def _card_bytes(model: Node, attribute: str, default_mib: int) -> int:
    said = int(model.get(attribute, "0")) << 10 or default_mib * MIB
    return 1 << (said - 1).bit_length()


def _cache_bytes(root: Node) -> int:
    cache = root.find("features", "tcg", "tb-cache")
    return values.in_bytes(cache.text, cache.get("unit")) if cache is not None else _DEFAULT_CACHE_BYTES
