"""The whole of ``spec.domain``."""

from __future__ import annotations

from pydantic import Field

from apiserver.apis.meta.schema import ATOMIC, Model
from apiserver.apis.meta.validation import FieldError, Path
from apiserver.apis.virt.hardware.cpu import MAX_QUEUES
from apiserver.apis.virt.v1alpha1.domain import (
    chassis,
    clock,
    consoles,
    cpu,
    disks,
    features,
    filesystems,
    firmware,
    gpus,
    graphics,
    host_devices,
    inputs,
    interfaces,
    io_threads,
    machine,
    memory,
    panic,
    redirected_devices,
    resources,
    rng,
    sound,
    tpm,
    video,
    vsock,
    watchdog,
)
from apiserver.apis.virt.v1alpha1.domain.chassis import Chassis
from apiserver.apis.virt.v1alpha1.domain.clock import Clock
from apiserver.apis.virt.v1alpha1.domain.consoles import Console
from apiserver.apis.virt.v1alpha1.domain.cpu import CPU
from apiserver.apis.virt.v1alpha1.domain.disks import Disk
from apiserver.apis.virt.v1alpha1.domain.features import Features
from apiserver.apis.virt.v1alpha1.domain.filesystems import Filesystem
from apiserver.apis.virt.v1alpha1.domain.firmware import Firmware
from apiserver.apis.virt.v1alpha1.domain.gpus import GPU
from apiserver.apis.virt.v1alpha1.domain.graphics import Graphics
from apiserver.apis.virt.v1alpha1.domain.host_devices import HostDevice
from apiserver.apis.virt.v1alpha1.domain.inputs import Input
from apiserver.apis.virt.v1alpha1.domain.interfaces import Interface
from apiserver.apis.virt.v1alpha1.domain.io_threads import IOThreads
from apiserver.apis.virt.v1alpha1.domain.machine import Machine
from apiserver.apis.virt.v1alpha1.domain.memory import Memory
from apiserver.apis.virt.v1alpha1.domain.panic import Panic
from apiserver.apis.virt.v1alpha1.domain.redirected_devices import RedirectedDevices
from apiserver.apis.virt.v1alpha1.domain.resources import Resources
from apiserver.apis.virt.v1alpha1.domain.rng import Rng
from apiserver.apis.virt.v1alpha1.domain.rules import Object
from apiserver.apis.virt.v1alpha1.domain.sound import Sound
from apiserver.apis.virt.v1alpha1.domain.tpm import TPM
from apiserver.apis.virt.v1alpha1.domain.video import Video
from apiserver.apis.virt.v1alpha1.domain.vsock import Vsock
from apiserver.apis.virt.v1alpha1.domain.watchdog import Watchdog

_FAMILIES = (
    cpu,
    memory,
    resources,
    machine,
    clock,
    features,
    firmware,
    chassis,
    disks,
    filesystems,
    io_threads,
    interfaces,
    graphics,
    video,
    inputs,
    consoles,
    sound,
    watchdog,
    rng,
    panic,
    tpm,
    vsock,
    gpus,
    host_devices,
    redirected_devices,
)


class Devices(Model):
    """The guest's devices. Applying a manifest replaces each list as a whole."""

    disks: list[Disk] | None = Field(
        None,
        description="Disks and CD-ROM drives. A running guest gets and loses disks on claims with a file system, and media.",
        json_schema_extra=ATOMIC,
    )
    filesystems: list[Filesystem] | None = Field(
        None, description="File systems shared with the guest by virtiofs. Default: none.", json_schema_extra=ATOMIC
    )
    interfaces: list[Interface] | None = Field(
        None,
        description="Network interfaces. Default: one of type masquerade; [] means none. A running guest gets and loses those of types "
        "masquerade, macvtap and plugin, and of type bridge with network.",
        json_schema_extra=ATOMIC,
    )
    graphics: list[Graphics] | None = Field(
        None, description="Displays. Default: one of type vnc; [] means none.", json_schema_extra=ATOMIC
    )
    consoles: list[Console] | None = Field(
        None,
        description="Serial ports. The console subresource shows the first, and with ?port=1 the second. Default: one.",
        json_schema_extra=ATOMIC,
    )
    log_serial_console: bool | None = Field(
        None,
        description="Whether the pod has a container guest-console, so that kubectl logs shows what the guest prints on the first serial "
        "port. The node keeps it as long as other logs. kubectl virt logs needs no container. Default false.",
    )
    video: Video | None = Field(None, description="The video card. Default: one of type vga if there are displays.")
    inputs: list[Input] | None = Field(
        None,
        description="Keyboards and pointers; every machine also has PS/2 ones. Default: a tablet if there are displays; [] means none.",
        json_schema_extra=ATOMIC,
    )
    sound: Sound | None = Field(None, description="A sound card. Default: none.")
    watchdog: Watchdog | None = Field(None, description="A watchdog. Default: none.")
    rng: Rng | None = Field(None, description="The source of random numbers. Default: a virtio one.")
    panic: Panic | None = Field(None, description="The panic device. Default: an isa one.")
    tpm: TPM | None = Field(None, description="A Trusted Platform Module. Default: none.")
    vsock: Vsock | None = Field(
        None, description="Sockets between the guest and its node, if the cluster's administrator allows them. Default: none."
    )
    block_multi_queue: bool | None = Field(
        None,
        description=f"Each disk of bus virtio or scsi has one queue for each processor, at most {MAX_QUEUES}; false: one queue. "
        "Default: QEMU's choice for the machine type. On newer types, one for each processor.",
    )
    network_interface_multiqueue: bool | None = Field(
        None,
        description=f"Each card of model virtio has one pair of queues for each processor, at most {MAX_QUEUES}. Default false.",
    )
    autoattach_mem_balloon: bool | None = Field(
        None, description="Whether the machine has a balloon device, which returns unused memory of the guest. Default true."
    )
    gpus: list[GPU] | None = Field(None, description="Graphics processors of the node. Default: none.", json_schema_extra=ATOMIC)
    host_devices: list[HostDevice] | None = Field(
        None,
        description="Other devices of the node. A machine with such a device, or a graphics processor, cannot migrate live. Default: none.",
        json_schema_extra=ATOMIC,
    )
    redirected_devices: RedirectedDevices | None = Field(None, description="Slots for USB devices of clients. Default: none.")


class Domain(Model):
    """The machine itself, in libvirt's terms."""

    cpu: CPU | None = Field(None, description="Virtual processors.")
    memory: Memory | None = Field(None, description="Memory.")
    resources: Resources | None = Field(None, description="Requests and limits for resources of the node.")
    machine: Machine | None = Field(None, description="The emulated machine.")
    io_threads: IOThreads | None = Field(None, alias="ioThreads", description="Threads of QEMU that serve disks.")
    clock: Clock | None = Field(None, description="The clock that the guest reads, and its timers.")
    features: Features | None = Field(None, description="Features of the hypervisor and the machine.")
    firmware: Firmware | None = Field(None, description="The guest's firmware.")
    chassis: Chassis | None = Field(None, description="The machine's chassis in SMBIOS.")
    devices: Devices | None = Field(None, description="Disks, network interfaces, displays, serial ports and further devices.")


def validate(domain: Object, path: Path) -> list[FieldError]:
    """Return errors in ``spec.domain``, at ``path``, with defaults, family by family."""
    return [error for family in _FAMILIES for error in family.validate(domain, path)]
