"""Paths in a launcher pod, for virt-controller, virt-launcher and virt-handler.

For virt-handler, ``RUN_DIRECTORY`` is the kubelet's directory of ``RUN_VOLUME``; a guest may control its content. Unix socket paths have at
most 108 bytes (``sun_path``), so virt-handler connects through ``/proc/self/fd``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Volume:
    """An ``emptyDir`` in memory of a launcher pod."""

    name: str
    directory: str
    size: int
    """In bytes."""


RUN_VOLUME: Final = "run"
RUN_DIRECTORY: Final = "/run/kubevirt"
"""``emptyDir`` in memory: sockets, libvirtd's configuration and state."""
CACHE_VOLUME: Final = "cache"
CACHE_DIRECTORY: Final = "/var/cache/kubevirt"
"""``emptyDir`` in memory: libvirtd's cache and QEMU's log, which a guest can make grow."""
TEMPORARY_VOLUME: Final = "tmp"
TEMPORARY_DIRECTORY: Final = "/tmp"  # noqa: S108 - of the pod
"""``emptyDir`` in memory: for libraries."""
IN_MEMORY: Final = (
    Volume(RUN_VOLUME, RUN_DIRECTORY, 4 << 20),
    Volume(CACHE_VOLUME, CACHE_DIRECTORY, 4 << 20),
    Volume(TEMPORARY_VOLUME, TEMPORARY_DIRECTORY, 1 << 20),
)
"""All writable places without image disks; the root is read-only. The kernel enforces the sizes."""
HUGEPAGES_VOLUME: Final = "hugepages"
HUGEPAGES_DIRECTORY: Final = "/var/lib/kubevirt/hugepages"
"""``emptyDir`` of huge pages for libvirt's file with the guest's memory."""
OVERLAYS_VOLUME: Final = "overlays"
OVERLAYS_DIRECTORY: Final = "/var/lib/kubevirt/overlays"
"""``emptyDir`` on the node's disk: an overlay for each writable image disk."""
PLUGIN_DISKS_VOLUME: Final = "plugin-disks"
PLUGIN_DISKS_DIRECTORY: Final = "/var/lib/kubevirt/plugin-disks"
"""``emptyDir``: virt-handler makes ``<here>/<disk name>`` for each plugin disk."""

LAUNCHER_SOCKET: Final = "launcher.sock"
"""virt-launcher's, for ``launcher.protocol``; relative to ``RUN_DIRECTORY``, like all below."""
CONSOLE_SOCKET: Final = "console.sock"
"""virt-launcher's: a connection gets recent, then new output; what it writes is the guest's input."""
CONSOLE_REPLAY_BYTES: Final = 64 << 10
"""Recent output for a connection: ten screens of 80 by 50 characters with colours."""
CONSOLE_HISTORY_BYTES: Final = 512 << 10
"""Kept by virt-launcher for each serial port."""
CONSOLE_PIPE: Final = "guest-console"
"""Named pipe with the first serial port's output, for the container that logs it."""
SERIAL_SOCKET: Final = "serial.sock"
"""QEMU's, of the first serial port, only for virt-launcher."""
SERIAL_PORTS: Final = 4
"""A PC has four."""
REDIRECTED_DEVICES: Final = 4
"""Maximum USB devices of clients per machine."""
VNC_SOCKET: Final = "vnc.sock"
SCREENSHOT_SOCKET: Final = "screenshot.sock"
"""virt-launcher's: a connection gets the screen as PNG, or a message."""
SPICE_SOCKET: Final = "spice.sock"
DEADLINE_SOCKET: Final = "deadline.sock"
"""virt-launcher's: virt-handler passes it the file with the guardian's deadline (``places.deadlines``)."""
PASST_SOCKET: Final = "passt.sock"
"""passt's, for the guest's card, only for QEMU."""
PASST_PID: Final = "passt.pid"
"""Written by passt when ready."""
LIBVIRT_SOCKET: Final = "libvirt/libvirt-sock"
MIGRATION_LIBVIRT_SOCKET: Final = "migration/libvirt.sock"
"""In the source pod: made by virt-handler, leads to the target's libvirt."""
MIGRATION_DATA_SOCKET: Final = "migration/data.sock"
"""Made by virt-handler in the source pod, by QEMU in the target pod."""
MIGRATION_DISKS_SOCKET: Final = "migration/disks.sock"
"""The same for copied disks: QEMU's NBD server, one connection per disk."""
MIGRATION_MADE_DISKS_SOCKET: Final = "migration/made-disks.sock"
"""For disks made in the pod: by virt-handler in the source pod, by virt-launcher in the target pod."""

DISKS_VOLUME: Final = "disks"
DISKS_DIRECTORY: Final = "/var/lib/kubevirt/disks"
"""Filesystem claims, with ``disk.img``: ``<here>/<disk name>``. The root is read-only, so virt-handler mounts a running guest's in an
``emptyDir``."""
OVERLAY: Final = "overlay.qcow2"
"""A hot-plugged disk's overlay: ``DISKS_DIRECTORY/<disk name>.overlay/<here>``. A disk's name has no dots."""
DEVICES_DIRECTORY: Final = "/dev/kubevirt-disks"
"""Block claims: ``<here>/<disk name>``. The read-only root forbids changing a device's owner."""
DISK_IMAGE: Final = "disk.img"
IMAGES_DIRECTORY: Final = "/var/lib/kubevirt/images"
"""Image volumes, read-only: ``<here>/<disk name>``, in the same ``emptyDir``."""
KERNEL_BOOT_DIRECTORY: Final = "/var/lib/kubevirt/kernel-boot"
"""The image volume of ``firmware.kernelBoot``."""
SOURCES_DIRECTORY: Final = "/var/lib/kubevirt/sources"
"""Secrets or ConfigMaps for disks made in the pod, read-only: ``<here>/<disk name>``."""
FILESYSTEMS_DIRECTORY: Final = "/var/lib/kubevirt/filesystems"
"""Shared with the guest: ``<here>/<file system name>``."""
ACCESS_CREDENTIALS_DIRECTORY: Final = "/var/lib/kubevirt/access-credentials"
"""Secrets of ``spec.accessCredentials``, read-only: ``<here>/<position>``."""
IMPORT_SECRETS_DIRECTORY: Final = "/var/lib/kubevirt/import-secrets"
"""The Secret with credentials for a disk's image, read-only: ``<here>/<disk name>``."""
IMPORT_AUTHORITIES_DIRECTORY: Final = "/var/lib/kubevirt/import-authorities"
"""Certificate authorities for that image's server: ``<here>/<disk name>/ca.crt``."""
MADE_VOLUME: Final = "made-disks"
MADE_DIRECTORY: Final = "/var/lib/kubevirt/made-disks"
"""``emptyDir`` in memory for images made in the pod: ``<disk name>.iso``."""
ATTACHMENT_VOLUME: Final = "attachment"
ATTACHMENT_DIRECTORY: Final = "/var/lib/kubevirt/attachment"
"""A running guest's new claim in the attachment pod, identified by this mount. virt-handler clones it."""
ATTACHMENT_DEVICE: Final = "/dev/kubevirt-disks/attachment"
"""The claim in the attachment pod, if it is a block device."""
ATTACHMENT_OVERLAY_VOLUME: Final = "attachment-overlay"
ATTACHMENT_OVERLAY_DIRECTORY: Final = "/var/lib/kubevirt/attachment-overlay"
"""The attachment pod's ``emptyDir`` for a disk's overlay, identified and cloned like the claim."""
ATTACHMENT_IMPORT_VOLUME: Final = "attachment-import"
ATTACHMENT_IMPORT_DIRECTORY: Final = "/var/lib/kubevirt/attachment-import"
"""An empty ``emptyDir``, which identifies an attachment pod that fills its claim with an image first."""
ATTACHMENT_SOCKET: Final = "attachment.sock"
"""In ``RUN_DIRECTORY``: virt-handler finds the pod's process through it."""
STATE_VOLUME: Final = "firmware-state"
STATE_DIRECTORY: Final = "/var/lib/kubevirt/firmware-state"
"""The claim of ``firmware.persistentState``, with a directory per machine."""
MANAGED_SAVE_VOLUME: Final = "managed-save"
MANAGED_SAVE_DIRECTORY: Final = "/var/lib/kubevirt/managed-save"
"""The claim of ``spec.managedSave``, with a directory per machine."""
NODE_DISK: Final = "node-disk"
"""Below ``RUN_DIRECTORY``: virt-handler mounts the image file system of ``managedSave.nodeDisk`` there."""
IMAGE_REMOVAL_DIRECTORY: Final = "/var/lib/kubevirt/image-removal"
"""A machine's directory of that claim in the pod that deletes its files, identified by this mount."""
EFI_VARIABLES_DIRECTORY: Final = f"{RUN_DIRECTORY}/efi"
"""UEFI variables that are not persistent."""
TPM_DIRECTORY: Final = f"{RUN_DIRECTORY}/config/libvirt/qemu/swtpm"
"""States of TPMs: ``<directory>/<UUID of the domain>/tpm2``."""
NBD_TLS_VOLUME: Final = "nbd-certificates"
NBD_TLS_DIRECTORY: Final = "/var/lib/kubevirt/nbd-certificates"
"""The Secret with certificates for NBD servers, read-only."""
NBD_CERTIFICATES_DIRECTORY: Final = f"{RUN_DIRECTORY}/nbd-certificates"
"""These certificates, and the machine's key: in memory."""

EMULATOR: Final = "/usr/bin/qemu-system-x86_64"
AGENT_CHANNEL: Final = "org.qemu.guest_agent.0"
"""The guest agent's virtio port."""

USER_ID: Final = 107
"""uid and gid of everything in a launcher pod (``qemu`` in the image's passwd)."""


def overlay_directory(disk: str) -> str:
    """Return the name below ``DISKS_DIRECTORY`` of the directory with a hot-plugged disk's overlay."""
    return f"{disk}.overlay"


def console_socket(port: int) -> str:
    """Return virt-launcher's socket name in ``RUN_DIRECTORY`` for a serial port's output and input."""
    return CONSOLE_SOCKET if port == 0 else f"console{port}.sock"


def log_socket(port: int) -> str:
    """Return virt-launcher's socket name in ``RUN_DIRECTORY`` for a serial port's output.

    A connection gets the kept output, then new output until the client closes its sending side.
    """
    return f"log{port}.sock"


def serial_socket(port: int) -> str:
    """Return QEMU's socket name in ``RUN_DIRECTORY`` of a serial port, only for virt-launcher."""
    return SERIAL_SOCKET if port == 0 else f"serial{port}.sock"


def redirection_socket(slot: int) -> str:
    """Return QEMU's socket name in ``RUN_DIRECTORY`` of a slot for a client's USB device."""
    return f"usbredir{slot}.sock"


def filesystem_socket(position: int) -> str:
    """Return virtiofsd's socket name in ``RUN_DIRECTORY`` for a file system by position, only for QEMU."""
    return f"virtiofs{position}.sock"
