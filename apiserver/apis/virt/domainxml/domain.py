"""The ``<domain>`` element."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from apiserver.apis.virt.domainxml import values
from apiserver.apis.virt.domainxml.devices import DEVICES
from apiserver.apis.virt.domainxml.grammar import Element
from apiserver.apis.virt.domainxml.processors import CLOCK, CPU, FEATURES, MAX_CPUS
from apiserver.apis.virt.domainxml.values import ON_OFF, YES_NO, line, number, prose, unit, words
from apiserver.apis.virt.hardware import io_threads, machine

_AMOUNT: Final = number(1, 10**18)


def _entries(*names: str) -> Element:
    entry = Element({"name": words(*names)}, text=line(256), required=frozenset({"name"}), most=len(names))
    return Element(children={"entry": entry}, required_children=frozenset({"entry"}))


_SYSINFO: Final = Element(
    {"type": words("smbios")},
    {
        "bios": _entries("vendor", "version", "date", "release"),
        "system": _entries("manufacturer", "product", "version", "serial", "uuid", "sku", "family"),
        "baseBoard": _entries("manufacturer", "product", "version", "serial", "asset", "location"),
        "chassis": _entries("manufacturer", "version", "serial", "asset", "sku"),
        "oemStrings": Element(children={"entry": Element(text=line(1024), most=32)}, required_children=frozenset({"entry"})),
    },
    required=frozenset({"type"}),
)


def _machine(value: str) -> str:
    return "" if value in machine.TYPES else f"must be one of {machine.TYPES_IN_WORDS}"


_OS: Final = Element(
    children={
        "type": Element(
            {
                "arch": words("x86_64"),
                "machine": _machine,
            },
            text=words("hvm"),
            required=frozenset({"arch", "machine"}),
        ),
        "boot": Element({"dev": words("hd", "cdrom", "network")}, required=frozenset({"dev"}), most=3),
        "bootmenu": Element({"enable": YES_NO, "timeout": number(0, 65535)}, required=frozenset({"enable"})),
        "loader": Element(
            {"readonly": words("yes"), "type": words("pflash"), "secure": YES_NO},
            text=words(values.LOADER),
            required=frozenset({"readonly", "type"}),
        ),
        "nvram": Element(text=words(values.NVRAM)),
        "bios": Element({"useserial": YES_NO, "rebootTimeout": number(-1, 32767)}),
        "smbios": Element({"mode": words("emulate", "sysinfo")}, required=frozenset({"mode"})),
        "kernel": Element(text=words(values.KERNEL)),
        "initrd": Element(text=words(values.INITRD)),
        "cmdline": Element(text=line(2048)),
    },
    required_children=frozenset({"type"}),
)
_MEMORY_BACKING: Final = Element(
    children={
        "hugepages": Element(
            children={"page": Element({"size": _AMOUNT, "unit": unit}, required=frozenset({"size"}))}, required_children=frozenset({"page"})
        ),
        "source": Element({"type": words("memfd", "anonymous")}, required=frozenset({"type"})),
        "access": Element({"mode": words("shared", "private")}, required=frozenset({"mode"})),
        "nosharepages": Element(),
    }
)
_SWITCH: Final = Element({"enabled": YES_NO}, required=frozenset({"enabled"}))

DOMAIN: Final = Element(
    {"type": words(values.TYPE, "kvm", "qemu"), "id": number(1, 1 << 31)},
    {
        "name": Element(text=line(256)),
        "uuid": Element(text=values.uuid),
        "genid": Element(text=values.literal_uuid),
        "title": Element(text=line(256)),
        "description": Element(text=prose(8192)),
        "metadata": Element(is_foreign=True),
        "memory": Element({"unit": unit, "dumpCore": ON_OFF}, text=_AMOUNT),
        "currentMemory": Element({"unit": unit}, text=_AMOUNT),
        "maxMemory": Element({"unit": unit, "slots": number(1, 256)}, text=_AMOUNT, required=frozenset({"slots"})),
        "memoryBacking": _MEMORY_BACKING,
        "vcpu": Element({"placement": words("static"), "current": number(1, MAX_CPUS)}, text=number(1, MAX_CPUS)),
        "iothreads": Element(text=number(0, io_threads.MAX)),
        "sysinfo": _SYSINFO,
        "os": _OS,
        "features": FEATURES,
        "cpu": CPU,
        "clock": CLOCK,
        "on_poweroff": Element(text=words("destroy")),
        "on_reboot": Element(text=words("restart")),
        "on_crash": Element(text=words("destroy")),
        "pm": Element(children={"suspend-to-mem": _SWITCH, "suspend-to-disk": _SWITCH}),
        "devices": DEVICES,
    },
    required=frozenset({"type"}),
    required_children=frozenset({"name", "memory", "vcpu", "os", "devices"}),
)

_OUTSIDE: Final = "is not allowed: it reaches outside the machine's pod"
_UEFI: Final = (
    f"is not allowed: write <loader readonly='yes' type='pflash'>{values.LOADER}</loader><nvram>{values.NVRAM}</nvram>, which stand for "
    "the pod's UEFI files"
)
_OF_THE_POD: Final = "is not allowed: the pod's requests and limits set what the machine may use of its node"
REASONS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("hostdev", "redirdev", "redirfilter", "filesystem", "shmem", "smartcard", "lease", "vsock", "crypto", "pstore"),
        _OUTSIDE,
    ),
    **dict.fromkeys(("hook", "script", "backenddomain", "bootloader", "bootloader_args", "protocol", "log"), _OUTSIDE),
    **dict.fromkeys(("virtualport", "filterref", "bandwidth", "backend", "mtu", "portForward", "vlan"), _OUTSIDE),
    **dict.fromkeys(("backingStore", "mirror", "encryption", "auth", "seclabel", "slices", "reservations"), _OUTSIDE),
    **dict.fromkeys(
        ("cputune", "memtune", "blkiotune", "numatune", "resource", "iothreadids", "throttlegroups", "locked", "allocation"),
        _OF_THE_POD,
    ),
    "launchSecurity": "is not allowed: it needs devices of the node that the pod does not have",
    "shareable": "is not allowed: it disables QEMU's lock on the disk, which prevents two guests from writing to it",
    "transient": "is not allowed: the guest's writes would go to another file",
    "@listen": "is not allowed: displays are reachable only through virt-api and virt-handler",
    "@port": "is not allowed here: displays are reachable only through virt-api and virt-handler",
    "@autoport": "is not allowed: displays are reachable only through virt-api and virt-handler",
    "@tlsPort": "is not allowed: displays are reachable only through virt-api and virt-handler",
    "@passwd": "is not allowed: access to the display is controlled by RBAC on the machine's subresources",
    "@cpuset": _OF_THE_POD,
    **dict.fromkeys(("firmware", "@firmware", "@template", "@templateFormat", "@stateless", "varstore"), _UEFI),
}
"""Why an element or attribute is not allowed, by name."""
