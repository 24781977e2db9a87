from __future__ import annotations

from typing import Any, Final

DISK: Final = "<disk type='file'><driver name='qemu' type='raw'/><source file='@disk:root@'/><target dev='vda' bus='virtio'/></disk>"
INTERFACE: Final = (
    "<interface type='ethernet'><mac address='@mac:default@'/><target dev='@network:default@' managed='no'/>"
    "<model type='virtio'/></interface>"
)
SERIAL: Final = "<serial type='unix'><source mode='bind' path='@serial@'/></serial>"
OPERATING: Final = "<type arch='x86_64' machine='q35'>hvm</type>"

LOADER: Final = "<loader readonly='yes' type='pflash'>@loader@</loader>"
NVRAM: Final = "<nvram>@nvram@</nvram>"

ROOT: Final[dict[str, Any]] = {"name": "root", "type": "PersistentVolumeClaim", "source": {"name": "claim"}}


def document(
    devices: str = "",
    inside: str = "",
    *,
    memory: str = "<memory unit='MiB'>128</memory>",
    vcpu: str = "<vcpu>2</vcpu>",
    system: str = OPERATING,
    attributes: str = "type='qemu'",
    before: str = "",
) -> str:
    return (
        f"{before}<domain {attributes}><name>@name@</name><uuid>@uuid@</uuid>{memory}{vcpu}"
        f"<os>{system}</os>{inside}<devices>{devices}</devices></domain>"
    )


def uefi(loader: str = LOADER, nvram: str = NVRAM, features: str = "<acpi/>", *, devices: str = "", system: str = "") -> str:
    return document(devices, f"<features>{features}</features>", system=system or f"{OPERATING}{loader}{nvram}")
