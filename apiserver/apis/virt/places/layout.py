"""Paths inside a launcher pod: what virt-controller mounts, virt-launcher uses and virt-handler reaches.

virt-handler sees ``RUN_DIRECTORY`` of a pod as the kubelet's directory of the emptyDir volume ``RUN_VOLUME``; the guest's
output can fill files there, so nothing in it is trusted. Unix socket paths are limited to 108 bytes (``sun_path``), which is
why they are short here and why virt-handler connects through ``/proc/self/fd``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Volume:
    """An emptyDir of the pod."""

    name: str
    directory: str
    """Its mount path."""
    size: int
    """Bytes that fit in."""


RUN_VOLUME: Final = "run"
RUN_DIRECTORY: Final = "/run/kubevirt"
"""emptyDir of the pod, in memory: sockets, libvirtd's configuration and state."""
CACHE_VOLUME: Final = "cache"
CACHE_DIRECTORY: Final = "/var/cache/kubevirt"
"""emptyDir of the pod, in memory: libvirtd's cache and QEMU's log, which a guest can make grow; so that it fills nothing else."""
TEMPORARY_VOLUME: Final = "tmp"
TEMPORARY_DIRECTORY: Final = "/tmp"  # noqa: S108 - of the pod
"""emptyDir of the pod, in memory: for libraries that want one."""
IN_MEMORY: Final = (
    Volume(RUN_VOLUME, RUN_DIRECTORY, 4 << 20),
    Volume(CACHE_VOLUME, CACHE_DIRECTORY, 4 << 20),
    Volume(TEMPORARY_VOLUME, TEMPORARY_DIRECTORY, 1 << 20),
)
"""All that can be written in a pod without image disks: the root file system is read-only. The kernel keeps to these sizes."""
HUGEPAGES_VOLUME: Final = "hugepages"
HUGEPAGES_DIRECTORY: Final = "/var/lib/kubevirt/hugepages"
"""emptyDir of a pod whose guest's memory consists of huge pages: libvirt makes a file for it there."""
OVERLAYS_VOLUME: Final = "overlays"
OVERLAYS_DIRECTORY: Final = "/var/lib/kubevirt/overlays"
"""emptyDir of a pod with image disks that the guest writes to, on the node's disk: an overlay for each of them."""
PLUGIN_DISKS_VOLUME: Final = "plugin-disks"
PLUGIN_DISKS_DIRECTORY: Final = "/var/lib/kubevirt/plugin-disks"
"""emptyDir of a pod with disks that plugins set up: a directory for each of them, ``<here>/<disk name>``, which virt-handler makes."""

LAUNCHER_SOCKET: Final = "launcher.sock"
"""virt-launcher's wire (``launcher.protocol``), relative to ``RUN_DIRECTORY``, like all sockets below."""
CONSOLE_SOCKET: Final = "console.sock"
"""virt-launcher's console: a connection first gets the last screenful, then live bytes; what it writes is typed."""
CONSOLE_REPLAY_BYTES: Final = 64 << 10
"""Newest output that each connection to the console gets first: ten full screens of 80 by 50 characters with colours."""
SERIAL_SOCKET: Final = "serial.sock"
"""QEMU's end of the first serial port; virt-launcher alone connects to it."""
SERIAL_PORTS: Final = 4
"""Serial ports of a PC."""
REDIRECTED_DEVICES: Final = 4
"""USB devices of clients that a machine can have at a time."""
VNC_SOCKET: Final = "vnc.sock"
SPICE_SOCKET: Final = "spice.sock"
PASST_SOCKET: Final = "passt.sock"
"""passt's end of the guest's card, where the guest has an interface of this type; QEMU alone connects to it."""
PASST_PID: Final = "passt.pid"
"""Written by passt when it is ready."""
LIBVIRT_SOCKET: Final = "libvirt/libvirt-sock"
MIGRATION_LIBVIRT_SOCKET: Final = "migration/libvirt.sock"
"""In the source pod: made by virt-handler, leads to the target's ``LIBVIRT_SOCKET``."""
MIGRATION_DATA_SOCKET: Final = "migration/data.sock"
"""In the source pod: made by virt-handler; in the target pod: made by QEMU."""
MIGRATION_DISKS_SOCKET: Final = "migration/disks.sock"
"""The same, for disks that are copied along: QEMU's NBD server, a connection for each disk."""

DISKS_DIRECTORY: Final = "/var/lib/kubevirt/disks"
"""Filesystem claims are mounted at ``<here>/<disk name>`` and hold ``disk.img``."""
DEVICES_DIRECTORY: Final = "/dev/kubevirt-disks"
"""Block claims are the device ``<here>/<disk name>``: the container's root is read-only, and no node in it could change its owner."""
DISK_IMAGE: Final = "disk.img"
IMAGES_DIRECTORY: Final = "/var/lib/kubevirt/images"
"""Image volumes are mounted read-only at ``<here>/<disk name>``."""
KERNEL_BOOT_DIRECTORY: Final = "/var/lib/kubevirt/kernel-boot"
"""The image volume of ``firmware.kernelBoot``."""
SOURCES_DIRECTORY: Final = "/var/lib/kubevirt/sources"
"""Of a disk whose image is made in the pod, what the kubelet mounts of Secrets or a ConfigMap is at ``<here>/<disk name>``, read-only."""
FILESYSTEMS_DIRECTORY: Final = "/var/lib/kubevirt/filesystems"
"""Mount points of what file systems share with the guest: ``<here>/<its name>``."""
ACCESS_CREDENTIALS_DIRECTORY: Final = "/var/lib/kubevirt/access-credentials"
"""The Secret of each of ``spec.accessCredentials`` is mounted at ``<here>/<its position>``, read-only."""
IMPORT_SECRETS_DIRECTORY: Final = "/var/lib/kubevirt/import-secrets"
"""The Secret with credentials for the image of a disk is mounted at ``<here>/<disk name>``, read-only."""
IMPORT_AUTHORITIES_DIRECTORY: Final = "/var/lib/kubevirt/import-authorities"
"""The certificates of authorities for the server of that image are at ``<here>/<disk name>/ca.crt``."""
MADE_VOLUME: Final = "made-disks"
MADE_DIRECTORY: Final = "/var/lib/kubevirt/made-disks"
"""emptyDir, in memory, of a pod with disks whose images are made in it: ``<disk name>.iso``."""
STATE_VOLUME: Final = "firmware-state"
STATE_DIRECTORY: Final = "/var/lib/kubevirt/firmware-state"
"""The claim of ``firmware.persistentState``, in which each machine has a directory of its own."""
EFI_VARIABLES_DIRECTORY: Final = f"{RUN_DIRECTORY}/efi"
"""UEFI variables that are not persistent."""
TPM_DIRECTORY: Final = f"{RUN_DIRECTORY}/config/libvirt/qemu/swtpm"
"""Directory of the states of TPMs, in a session libvirtd's place for them: ``<directory>/<UUID of the domain>/tpm2``."""
NBD_TLS_VOLUME: Final = "nbd-certificates"
NBD_TLS_DIRECTORY: Final = "/var/lib/kubevirt/nbd-certificates"
"""The Secret with certificates for TLS with NBD servers is mounted here, read-only."""
NBD_CERTIFICATES_DIRECTORY: Final = f"{RUN_DIRECTORY}/nbd-certificates"
"""Certificates for TLS with NBD servers, of all disks, and the machine's own key: in memory, and nobody else's to read."""

USER_ID: Final = 107
"""uid and gid of everything in a launcher pod (``qemu`` in the image's passwd)."""


def console_socket(port: int) -> str:
    """Return virt-launcher's console of a serial port, counted from 0."""
    return CONSOLE_SOCKET if port == 0 else f"console{port}.sock"


def serial_socket(port: int) -> str:
    """Return QEMU's end of a serial port, counted from 0."""
    return SERIAL_SOCKET if port == 0 else f"serial{port}.sock"


def redirection_socket(slot: int) -> str:
    """Return QEMU's end of a slot for a USB device of a client, counted from 0."""
    return f"usbredir{slot}.sock"


def filesystem_socket(position: int) -> str:
    """Return the end of the process that serves a file system, by its position in ``devices.filesystems``; QEMU alone connects to it."""
    return f"virtiofs{position}.sock"
