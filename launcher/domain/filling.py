"""Fills values of the pod into a machine's own XML (``spec.domainXML``).

It replaces bytes only in the places of docs/domain-xml.md, then parses the XML again and refuses what virt-api refuses.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final, TypeAlias

from apiserver.apis.virt.domainxml import beside, disks, parsing, reading, values
from apiserver.apis.virt.domainxml.parsing import Node
from apiserver.apis.virt.domainxml.reading import Reading
from apiserver.apis.virt.hardware import cpu, memory
from apiserver.apis.virt.places import layout
from launcher.domain import disk_origins, document, firmware, firmware_files, guest_agent
from launcher.domain.definition import Definition, Tap
from launcher.domain.disk_origins import Found
from launcher.domain.values import InvalidSpecification, socket

FIELD: Final = "domainXML"
_ESCAPED: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&apos;"})
_SOCKETS: Final = {"serial": layout.SERIAL_SOCKET, "console": layout.SERIAL_SOCKET, "channel": guest_agent.SOCKET}
_DISPLAYS: Final = {"vnc": layout.VNC_SOCKET, "spice": layout.SPICE_SOCKET}

Edit: TypeAlias = tuple[parsing.Span, str]
"""A span of the document, and its replacement before escaping."""


def fill(text: str, definition: Definition, taps: Mapping[str, Tap]) -> str:
    """Return ``text``, which is ``spec.domainXML``, with the pod's values filled in, as XML for libvirt.

    Raises InvalidSpecification with the place in the XML. The definition's specification comes from
    :func:`apiserver.apis.virt.spec.described.domain_of`; ``taps`` are by the interface's name.
    """
    try:
        found, root = beside.read_document(text)
    except parsing.Malformed as error:
        raise InvalidSpecification(f"{FIELD}: {error}") from error
    edits = sorted(
        [
            *_identity(root, definition),
            *_amounts(root, found, definition),
            *_cpu(root, definition),
            *_kernel(root, definition),
            *_firmware(root, definition),
            *_disks(root, found, definition),
            *_interfaces(root, taps),
            *_sockets(root),
        ],
        reverse=True,
    )
    data = text.encode()
    for (begin, end), value in edits:
        data = data[:begin] + value.translate(_ESCAPED).encode() + data[end:]
    return data.decode()


def _attribute(node: Node, name: str, value: str) -> Edit:
    return node.spans[name], value


def _text(node: Node, value: str) -> Edit:
    if node.inner is None:
        raise InvalidSpecification(f"{FIELD}: {node.path}: must be written with two tags")
    return node.inner, value


def _identity(root: Node, definition: Definition) -> Iterator[Edit]:
    accelerator = definition.accelerator
    if accelerator not in ("qemu", "kvm"):
        raise InvalidSpecification(f"accelerator: {accelerator!r} must be qemu or kvm")
    if root.get("type") == values.TYPE:
        yield _attribute(root, "type", accelerator)
    elif root.get("type") == "kvm" and accelerator != "kvm":
        raise InvalidSpecification(
            f"{FIELD}: /domain/@type: this node has no KVM; use {values.TYPE} for KVM or emulation, whichever the node has"
        )
    name = root.child("name")
    if name is not None:
        yield _text(name, document.domain_name(definition.namespace, definition.name))
    own = document.domain_uuid(definition.uid, definition.specification)
    wanted = (definition.specification.get("firmware") or {}).get("uuid")
    uuid = root.child("uuid")
    places = [uuid] if uuid is not None else []
    system = root.find("sysinfo", "system")
    places += [each for each in (system.all("entry") if system is not None else ()) if each.get("name") == "uuid"]
    yield from (_text(each, own) for each in places if each.text == values.UUID or (wanted and each.text.lower() != own))


def _amounts(root: Node, found: Reading, definition: Definition) -> Iterator[Edit]:
    wanted = -(-memory.guest_bytes(definition.specification) // values.KIB)
    if wanted * values.KIB != found.memory_bytes:
        for name in ("memory", "currentMemory"):
            yield from _amount(root.child(name), wanted)
    given = definition.specification.get("cpu") or {}
    counts = {each: int(given.get(each) or 1) for each in cpu.COUNTS}
    if tuple(counts.values()) != found.topology:
        yield from _processors(root, counts, cpu.vcpus(definition.specification))


def _amount(node: Node | None, kibibytes: int) -> Iterator[Edit]:
    if node is None:
        return
    yield _text(node, str(kibibytes))
    if "unit" in node.spans:
        yield _attribute(node, "unit", "KiB")


def _processors(root: Node, counts: Mapping[str, int], total: int) -> Iterator[Edit]:
    vcpu, topology = root.child("vcpu"), root.find("cpu", "topology")
    if vcpu is not None:
        yield _text(vcpu, str(total))
        if "current" in vcpu.spans:
            yield _attribute(vcpu, "current", str(total))
    if topology is not None:
        for name, count in {**counts, "dies": 1}.items():
            if name in topology.spans:
                yield _attribute(topology, name, str(count))


def _cpu(root: Node, definition: Definition) -> Iterator[Edit]:
    node = root.child("cpu")
    if node is not None and node.get("mode") == "host-passthrough" and definition.accelerator == "qemu":
        yield _attribute(node, "mode", "maximum")


def _kernel(root: Node, definition: Definition) -> Iterator[Edit]:
    boot = (definition.specification.get("firmware") or {}).get("kernelBoot") or {}
    for name, field in (("kernel", "kernelPath"), ("initrd", "initrdPath")):
        node = root.find("os", name)
        if node is not None:
            yield _text(node, firmware.kernel_file(boot.get("container") or {}, field))


def _firmware(root: Node, definition: Definition) -> Iterator[Edit]:
    loader, nvram = root.find("os", "loader"), root.find("os", "nvram")
    if loader is None or nvram is None:
        return
    efi = firmware_files.efi(definition.specification, definition.uid)
    if efi is None or efi.secure != (loader.get("secure") == "yes"):
        raise InvalidSpecification(f"{FIELD}: {loader.path}: is not the UEFI firmware that the pod was created for")
    yield _text(loader, str(efi.code))
    yield _text(nvram, str(efi.variables))


def _disks(root: Node, found: Reading, definition: Definition) -> Iterator[Edit]:
    origins = {each.name: each for each in disk_origins.origins(definition.specification)}
    by_path = {each.path: each for each in found.disks}
    devices = root.child("devices")
    for element in devices.all("disk") if devices is not None else ():
        source, disk = element.child("source"), by_path.get(element.path)
        if source is None or disk is None:
            continue
        if disk.name not in origins or origins[disk.name].empty:
            raise InvalidSpecification(f"{FIELD}: {element.path}/source: disk {disk.name} not found")
        origin, at = origins[disk.name], definition.found.get(disk.name, Found())
        if disk.is_block != (is_device := disk_origins.is_device(origin, at)):
            kind = "block" if is_device else "file"
            raise InvalidSpecification(f"{FIELD}: {element.path}/@type: must be {kind}, like disk {disk.name} in the pod")
        if disk.format != (actual := disk_origins.format_of(origin, at)):
            raise InvalidSpecification(f"{FIELD}: {element.path}/driver/@type: must be {actual}, like disk {disk.name}")
        if origin.read_only and not disk.is_read_only:
            raise InvalidSpecification(f"{FIELD}: {element.path}/readonly: is required, because disk {disk.name} is read-only")
        yield _attribute(source, disks.SOURCES[element.get("type")], str(disk_origins.file_of(origin, at)))


def _interfaces(root: Node, taps: Mapping[str, Tap]) -> Iterator[Edit]:
    devices = root.child("devices")
    for element in devices.all("interface") if devices is not None else ():
        target, mac = element.child("target"), element.child("mac")
        name = values.name_in(target.get("dev"), values.NETWORK) if target is not None else ""
        tap = taps.get(name)
        if tap is None or target is None or mac is None:
            raise InvalidSpecification(f"{FIELD}: {element.path}/target/@dev: interface {name} not found")
        yield _attribute(target, "dev", tap.tap)
        if mac.get("address").lower() != tap.mac.lower():
            yield _attribute(mac, "address", tap.mac.lower())


def _sockets(root: Node) -> Iterator[Edit]:
    devices = root.child("devices")
    for element in devices.children if devices is not None else ():
        source, listen = element.child("source"), element.child("listen")
        if element.name in _SOCKETS and source is not None:
            yield _attribute(source, "path", socket(_SOCKETS[element.name]))
        if element.name == "graphics" and listen is not None:
            for node in (element, listen):
                if "socket" in node.spans:
                    yield _attribute(node, "socket", socket(_DISPLAYS[element.get("type")]))


def names_by_target(text: str) -> dict[str, str]:
    """Return the disks' names in ``spec.domainXML`` by libvirt's target names; empty for invalid XML."""
    try:
        return {each.target: each.name for each in reading.read(text).disks}
    except parsing.Malformed:
        return {}


def not_migratable(text: str, copied: Collection[str] = ()) -> str:
    """Return why a domain with this XML cannot migrate live; empty if it can, or for invalid XML. A migration copies ``copied`` disks."""
    try:
        disks = [each for each in reading.read(text).disks if each.name not in copied]
        cached = [each for each in disks if each.is_cached and not each.is_read_only]
    except parsing.Malformed:
        return ""
    return f"disk {cached[0].name!r} is not opened with cache none or directsync: {cached[0].path}/driver/@cache" if cached else ""
