"""Validation of VirtualMachines and Migrations. Sees defaulted objects; returns everything that is wrong at once.

Of an object of wrong shape the rest is judged, too, so that its author mends everything at once; then what the schema requires may be
absent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from apiserver.apis.meta import names, objectmeta, quantity
from apiserver.apis.meta.quantity import Quantity
from apiserver.apis.meta.validation import (
    FieldError,
    Path,
    Reason,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)
from apiserver.apis.virt import hardware, network, phases, power
from apiserver.apis.virt.v1alpha1 import placement

Object = Mapping[str, Any]

SPEC: Final = Path("spec")
DOMAIN: Final = SPEC.child("domain")
METADATA_NAME: Final = Path("metadata").child("name")

MAX_BYTES: Final = 128 << 10
"""Of an object without its status, as JSON: virt-controller keeps every one decoded, which takes up to ten times as much."""
MAX_NAME: Final = 63
"""The name of a VirtualMachine is the value of a label on its pods."""
MAX_DEVICE_NAME: Final = 50
"""Names of disks are part of names of pod volumes, which are labels of at most 63 bytes."""
MIN_MEMORY: Final = quantity.parse("16Mi")
MAX_MEMORY: Final = quantity.parse("16Ti")
MIN_OVERLAY: Final = quantity.parse("1Mi")
MAX_OVERLAY: Final = quantity.parse("64Ti")
MAX_CPUS: Final = 512
MAX_DISKS: Final = 26
MAX_INTERFACES: Final = 8
MAX_GRAPHICS: Final = 2
MAX_CONSOLES: Final = 4
"""Serial ports of a PC."""
MAX_KERNEL_ARGS: Final = 2048
MAX_SERIAL: Final = 36
MAX_GRACE_SECONDS: Final = 7 * 24 * 3600
MAX_START_TIMEOUT_SECONDS: Final = 24 * 3600

_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_CPU_MODEL: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_SERIAL: Final = re.compile(r"[A-Za-z0-9_.+-]*")
_IMAGE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,510}")


def validate_virtual_machine(obj: Object) -> list[FieldError]:
    """Return all that is wrong with a VirtualMachine; its metadata beyond the name is the machinery's."""
    return _validate_size(obj) + _validate_outside_domain(obj) + _validate_domain(obj["spec"]["domain"], DOMAIN)


def _validate_size(obj: Object, old: Object | None = None) -> list[FieldError]:
    size = _bytes(obj)
    if size <= MAX_BYTES or (old is not None and size <= _bytes(old)):
        return []
    text = f"may have, together with the spec, not more than {MAX_BYTES} bytes as JSON, and has {size}"
    return [FieldError("metadata", Reason.TOO_LONG, "", text)]


def _bytes(obj: Object) -> int:
    metadata = {key: value for key, value in (obj.get("metadata") or {}).items() if key != "managedFields"}
    return len(json.dumps((metadata, obj["spec"]), separators=(",", ":")))


def _validate_outside_domain(obj: Object) -> list[FieldError]:
    spec = obj["spec"]
    found: list[FieldError] = []
    name = obj.get("metadata", {}).get("name") or ""
    if len(name.encode()) > MAX_NAME:
        found.append(too_long(METADATA_NAME, MAX_NAME))
    found += _validate_running(spec)
    return found + placement.validate(spec, SPEC)


def _validate_domain(domain: Object, path: Path) -> list[FieldError]:
    found = _validate_cpu(domain["cpu"], path.child("cpu"))
    found += _validate_memory(domain["memory"], path.child("memory"))
    if (machine := domain["machine"]["type"]) not in hardware.MACHINES:
        found.append(invalid(path.child("machine", "type"), machine, f"must be one of {hardware.MACHINES_IN_WORDS}"))
    found += _validate_firmware(domain.get("firmware") or {}, path.child("firmware"))
    return found + _validate_devices(hardware.devices(domain), path.child("devices"))


def validate_virtual_machine_update(obj: Object, old: Object) -> list[FieldError]:
    """Return all that is wrong with an update: as at creation, and the domain of a machine that has a guest stays as it is.

    A spec, and in it a domain, that did not change is not judged again: rules that became stricter must not keep anybody from removing a
    finalizer, or from stopping a machine.
    """
    found = _validate_size(obj, old)
    if obj["spec"] == old["spec"]:
        return found
    found += _validate_outside_domain(obj)
    if obj["spec"]["domain"] != old["spec"]["domain"]:
        found += _validate_domain(obj["spec"]["domain"], DOMAIN)
    phase = phases.phase_of(old)
    if phase in phases.WITH_GUEST and not hardware.same(obj["spec"]["domain"], old["spec"]["domain"]):
        text = f"may be changed only while the virtual machine is off, and it is {phase}; stop it first"
        found.append(forbidden(DOMAIN, text))
    return found


def validate_migration(obj: Object) -> list[FieldError]:
    """Return all that is wrong with a new Migration."""
    return _validate_size(obj) + _validate_migration(obj)


def _validate_migration(obj: Object) -> list[FieldError]:
    spec = obj["spec"]
    path = SPEC.child("selector", "name")
    name = (spec.get("selector") or {}).get("name") or ""
    found = [invalid(path, name, each) for each in names.subdomain_errors(name)] if name else [required(path)]
    if len(name.encode()) > MAX_NAME:
        found.append(too_long(path, MAX_NAME))
    return found + objectmeta.validate_labels(spec.get("nodeSelector") or {}, SPEC.child("nodeSelector"))


def validate_migration_update(obj: Object, old: Object) -> list[FieldError]:
    """Return all that is wrong with an update: the spec says what was asked for and stays."""
    found = _validate_size(obj, old) + _validate_migration(obj)
    if obj["spec"] != old["spec"]:
        found.append(
            forbidden(SPEC, "a Migration cannot be changed; delete it, which cancels it while it is unfinished, and create another")
        )
    return found


def _validate_running(spec: Object) -> list[FieldError]:
    rerun = spec["rerun"]
    path = SPEC.child("rerun")
    return [
        *_between(rerun["limit"], 0, power.MAX_RERUN_LIMIT, path.child("limit")),
        *_between(rerun["startTimeoutSeconds"], 1, MAX_START_TIMEOUT_SECONDS, path.child("startTimeoutSeconds")),
        *_between(spec["terminationGracePeriodSeconds"], 0, MAX_GRACE_SECONDS, SPEC.child("terminationGracePeriodSeconds")),
    ]


def _validate_cpu(cpu: Object, path: Path) -> list[FieldError]:
    found = [error for field in ("sockets", "cores", "threads") for error in _between(cpu[field], 1, MAX_CPUS, path.child(field))]
    total = cpu["sockets"] * cpu["cores"] * cpu["threads"]
    if not found and total > MAX_CPUS:
        found.append(invalid(path, total, f"sockets x cores x threads must be less than or equal to {MAX_CPUS}"))
    if (model := cpu.get("model")) and not _CPU_MODEL.fullmatch(model):
        found.append(invalid(path.child("model"), model, "must be the name of a CPU model of libvirt, host-model or host-passthrough"))
    return found


def _validate_memory(memory: Object, path: Path) -> list[FieldError]:
    return _within(memory["guest"], MIN_MEMORY, MAX_MEMORY, path.child("guest"))


def _within(given: object, least: Quantity, most: Quantity, path: Path) -> list[FieldError]:
    amount = quantity.parse(str(given))
    if amount < least:
        return [invalid(path, given, f"must be greater than or equal to {least}")]
    if amount > most:
        return [invalid(path, given, f"must be less than or equal to {most}")]
    return []


def _validate_firmware(firmware: Object, path: Path) -> list[FieldError]:
    found = []
    if (uuid := firmware.get("uuid")) is not None and not _UUID.fullmatch(uuid):
        found.append(invalid(path.child("uuid"), uuid, "must be a UUID such as 5d307ca9-b3ef-428c-8861-06e72d69f223"))
    boot = firmware.get("kernelBoot")
    if boot is None:
        return found
    container, below = boot.get("container") or {}, path.child("kernelBoot", "container")
    found += _validate_image(container.get("image") or "", below.child("image"))
    found += _validate_path(container.get("kernelPath") or "", below.child("kernelPath"), absolute=True)
    if "initrdPath" in container:
        found += _validate_path(container["initrdPath"], below.child("initrdPath"), absolute=True)
    arguments, place = boot.get("kernelArgs") or "", path.child("kernelBoot", "kernelArgs")
    if len(arguments.encode()) > MAX_KERNEL_ARGS:
        found.append(too_long(place, MAX_KERNEL_ARGS))
    elif not arguments.isprintable():
        found.append(invalid(place, arguments, "must consist of printable characters"))
    return found


def _validate_devices(devices: Object, path: Path) -> list[FieldError]:
    disks, interfaces = devices["disks"], devices["interfaces"]
    found: list[FieldError] = []
    for field, limit in (("disks", MAX_DISKS), ("interfaces", MAX_INTERFACES), ("graphics", MAX_GRAPHICS), ("consoles", MAX_CONSOLES)):
        if len(devices[field]) > limit:
            found.append(too_many(path.child(field), len(devices[field]), limit))
    for position, disk in enumerate(disks):
        found += _validate_disk(disk, path.child("disks").index(position))
    found += _unique(disks, "name", path.child("disks")) + _unique(disks, "bootOrder", path.child("disks"))
    found += _unique_claims(disks, path.child("disks"))
    for position, interface in enumerate(interfaces):
        found += _validate_interface(interface, path.child("interfaces").index(position))
    found += _unique(interfaces, "name", path.child("interfaces")) + _unique(interfaces, "mac", path.child("interfaces"))
    if sum(each["type"] == "masquerade" for each in interfaces) > 1:
        found.append(forbidden(path.child("interfaces"), "only one interface can be joined to the pod's network"))
    return found + _unique(devices["graphics"], "type", path.child("graphics"))


def _validate_disk(disk: Object, path: Path) -> list[FieldError]:
    found = _validate_device_name(disk["name"], path.child("name"))
    if "type" in disk and "source" in disk:
        found += _validate_source(disk["type"], disk["source"], path.child("source"))
        found += _validate_overlay(disk, path.child("source", "sizeLimit"))
    if disk["device"] == "cdrom" and disk["target"]["bus"] == "virtio":
        found.append(not_supported(path.child("target", "bus"), "virtio", ("sata", "scsi")))
    if disk["device"] == "cdrom" and not disk["readOnly"]:
        found.append(invalid(path.child("readOnly"), disk["readOnly"], "a cdrom is always read-only"))
    if "bootOrder" in disk:
        found += _between(disk["bootOrder"], 1, MAX_DISKS, path.child("bootOrder"))
    serial = disk.get("serial") or ""
    if len(serial) > MAX_SERIAL:
        found.append(too_long(path.child("serial"), MAX_SERIAL))
    elif not _SERIAL.fullmatch(serial):
        found.append(invalid(path.child("serial"), serial, "must consist of alphanumeric characters, '_', '.', '+' or '-'"))
    return found


def _validate_source(kind: str, source: Object, path: Path) -> list[FieldError]:
    allowed = {"PersistentVolumeClaim": {"name"}, "Image": {"reference", "path", "pullPolicy", "sizeLimit"}}[kind]
    found = [forbidden(path.child(field), f"may not be set for a disk of type {kind}") for field in sorted(source.keys() - allowed)]
    if kind == "Image":
        found += _validate_image(source.get("reference") or "", path.child("reference"))
        return found + _validate_path(source.get("path") or "", path.child("path"), absolute=False)
    name = source.get("name") or ""
    if not name:
        return [*found, required(path.child("name"), "the name of a PersistentVolumeClaim in the same namespace")]
    return found + [invalid(path.child("name"), name, each) for each in names.subdomain_errors(name.lower())]


def _validate_overlay(disk: Object, path: Path) -> list[FieldError]:
    limit = disk["source"].get("sizeLimit")
    if disk["type"] != "Image" or limit is None:
        return []
    if not hardware.is_overlaid(disk):
        return [forbidden(path, "may not be set for a disk that the guest cannot write to")]
    return _within(limit, MIN_OVERLAY, MAX_OVERLAY, path)


def _validate_interface(interface: Object, path: Path) -> list[FieldError]:
    found = _validate_device_name(interface.get("name") or "", path.child("name"))
    mac = interface.get("mac")
    if mac and (problem := network.mac_problem(mac)):
        found.append(invalid(path.child("mac"), mac, problem))
    return found


def _validate_device_name(name: str, path: Path) -> list[FieldError]:
    if not name:
        return [required(path)]
    if len(name) > MAX_DEVICE_NAME:
        return [too_long(path, MAX_DEVICE_NAME)]
    return [invalid(path, name, each) for each in names.label_errors(name)]


def _validate_image(reference: str, path: Path) -> list[FieldError]:
    if not reference:
        return [required(path, "the reference of a container image")]
    if not _IMAGE.fullmatch(reference):
        return [invalid(path, reference, "must be the reference of a container image such as registry.example.com/name:tag")]
    return []


def _validate_path(text: str, path: Path, *, absolute: bool) -> list[FieldError]:
    if not text:
        return [required(path)]
    if absolute and not text.startswith("/"):
        return [invalid(path, text, "must be an absolute path")]
    if ".." in text.split("/"):
        return [invalid(path, text, "must not contain '..'")]
    if text.endswith("/") or not text.isprintable() or len(text.encode()) > 1024:
        return [invalid(path, text, "must be the path of a file, of at most 1024 printable characters")]
    return []


def _between(number: int, least: int, most: int, path: Path) -> list[FieldError]:
    if number < least:
        return [invalid(path, number, f"must be greater than or equal to {least}")]
    return [invalid(path, number, f"must be less than or equal to {most}")] if number > most else []


def _unique_claims(disks: Sequence[Object], path: Path) -> list[FieldError]:
    """QEMU locks the image of each disk, so that one claim cannot be two of them; the name is looked up in lower case."""
    seen: set[str] = set()
    found = []
    for position, disk in enumerate(disks):
        claim = str((disk.get("source") or {}).get("name") or "").lower() if disk.get("type") == "PersistentVolumeClaim" else ""
        if claim and claim in seen:
            found.append(duplicate(path.index(position).child("source", "name"), claim))
        seen.add(claim)
    return found


def _unique(items: Sequence[Object], field: str, path: Path) -> list[FieldError]:
    seen: set[Any] = set()
    found = []
    for position, each in enumerate(items):
        value = each.get(field)
        value = network.normal_mac(value) if field == "mac" and value else value
        if value is not None and value in seen:
            found.append(duplicate(path.index(position).child(field), value))
        seen.add(value)
    return found
