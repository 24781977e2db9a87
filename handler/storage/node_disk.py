"""Images of suspended guests on this node's disk (``spec.managedSave.nodeDisk``).

Each is a file of fixed size, with its blocks reserved and a file system inside, which alone gets mounted in the machine's pod. So a pod
reaches no other image, and cannot fill the node's disk.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from apiserver.apis.meta import descriptors
from apiserver.apis.meta.objects import Object, name_of, namespace_of, uid_of
from apiserver.apis.virt.places import layout
from handler.pods import mounts, opening
from handler.pods.process import Launcher
from handler.storage import loop_devices

KEEP_FREE_PERCENT: Final = 15
"""The kubelet evicts pods at 10 %."""
SPARE_BYTES: Final = 192 << 20
"""Beyond the guest's memory: virt-launcher's own spare room, and the file system's journal."""
NOT_ENABLED: Final = "node {} keeps no guests' memory on its disk: the chart's value managedSave.nodeDisk.enabled is false"
_DIRECTORY: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW
_NEW: Final = ".new"
_MAKE_SECONDS: Final = 60


class Refused(Exception):
    """This node cannot keep the image, or does not have it; the message says why."""


@dataclass(frozen=True, slots=True)
class Image:
    """An image of a guest's memory, named by its machine and the operation that saves it."""

    namespace: str
    machine: str
    machine_uid: str
    id: str

    @property
    def file(self) -> str:
        """The file's name; of its parts only the machine's name may have dots."""
        return f"{self.namespace}.{self.machine}.{self.machine_uid}.{self.id}"

    @classmethod
    def of(cls, file: str) -> Self | None:
        """Return the image with this file name; None for another name."""
        namespace, _, rest = file.partition(".")
        parts = rest.rsplit(".", 2)
        return cls(namespace, *parts) if len(parts) == 3 and namespace and all(parts) else None


def image_of(vm: Object, image_id: str) -> Image:
    """Return the Image, which need not exist, of a machine's memory by the id of the operation that saves it."""
    return Image(namespace_of(vm), name_of(vm), uid_of(vm), image_id)


@dataclass(frozen=True, slots=True)
class NodeDisk:
    """The directory with this node's images of guests' memory; None: the administrator allows none. Methods block."""

    node: str
    directory: Path | None
    keep_free_percent: int = KEEP_FREE_PERCENT
    _one: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def images(self) -> list[Image]:
        """Return the images of guests' memory on the disk. Raises OSError."""
        if self.directory is None or not self.directory.is_dir():
            return []
        return [image for each in sorted(self.directory.iterdir()) if (image := Image.of(each.name)) is not None]

    def clear(self) -> None:
        """Delete the file of a :meth:`make` that a kill interrupted. Raises OSError."""
        if self.directory is not None:
            with self._one:
                (self.directory / _NEW).unlink(missing_ok=True)

    def make(self, image: Image, memory_bytes: int) -> None:
        """Make the file for an image of this much memory, unless it exists. Raises Refused or OSError."""
        if self.directory is None:
            raise Refused(NOT_ENABLED.format(self.node))
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._one:
            if not (self.directory / image.file).exists():
                self._make(self.directory, image, memory_bytes + memory_bytes // 64 + SPARE_BYTES)

    def _make(self, directory: Path, image: Image, size: int) -> None:
        found = os.statvfs(directory)
        free, keep = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize * self.keep_free_percent // 100
        if free - size < keep:
            rest = f"{keep >> 20} MiB ({self.keep_free_percent} %) must remain (managedSave.nodeDisk.keepFreePercent)"
            raise Refused(f"the disk of node {self.node} has {free >> 20} MiB free; the image needs {size >> 20} MiB, and {rest}")
        new = directory / _NEW
        new.unlink(missing_ok=True)
        try:
            _format(new, size)
            new.rename(directory / image.file)
        except BaseException:
            new.unlink(missing_ok=True)
            raise
        with descriptors.closing(os.open(directory, os.O_RDONLY | os.O_CLOEXEC)) as opened:
            os.fsync(opened)

    def mount(self, image: Image, target: Launcher) -> None:
        """Mount the image's file system in a pod, in place of another. Idempotent. Raises Refused or OSError."""
        if self.directory is None:
            raise Refused(NOT_ENABLED.format(self.node))
        try:
            file = os.open(self.directory / image.file, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError as error:
            way = "to boot without it: kubectl virt start --discard-state"
            raise Refused(f"the disk of node {self.node} has no image {image.id} of this machine; {way}") from error
        with descriptors.closing(file), self._one, loop_devices.attached(file) as device, _run_directory(target) as run:
            with _place(run) as place:
                if Path(device).stat().st_rdev == os.fstat(place).st_dev:
                    return
                is_other = _is_mount(run, place)
            if is_other:
                mounts.unmount(mounts.Place(target.pidfd, run), layout.NODE_DISK)
            with _place(run) as place:
                mounts.mount_device(device, mounts.Place(target.pidfd, place))

    def unmount(self, image: Image, target: Launcher) -> None:
        """Unmount the image's file system in a pod, if mounted.

        Raises OSError: EBUSY while a process of the pod uses it, FileNotFoundError without the image.
        """
        if self.directory is None:
            return
        file = os.open(self.directory / image.file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        with descriptors.closing(file), self._one, _run_directory(target) as run:
            with _place(run) as place:
                is_mounted = os.fstat(place).st_dev == loop_devices.number_of(file)
            if is_mounted:
                mounts.unmount(mounts.Place(target.pidfd, run), layout.NODE_DISK)

    def delete(self, image: Image) -> None:
        """Delete an image's file. Its blocks are free once it is mounted nowhere. Raises OSError."""
        if self.directory is not None:
            (self.directory / image.file).unlink(missing_ok=True)


def _format(path: Path, size: int) -> None:
    with descriptors.closing(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)) as file:
        os.posix_fallocate(file, 0, size)
        owner = f"{layout.USER_ID}:{layout.USER_ID}"
        extended = f"nodiscard,lazy_itable_init=1,root_owner={owner}"
        command = ["mke2fs", "-q", "-F", "-t", "ext4", "-m", "0", "-N", "64", "-J", "size=16", "-E", extended, str(path)]
        try:
            subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=_MAKE_SECONDS)
        except subprocess.SubprocessError as error:
            raise Refused(f"mke2fs: {error}") from error
        os.fsync(file)


@contextlib.contextmanager
def _run_directory(target: Launcher) -> Iterator[int]:
    path = layout.RUN_DIRECTORY.lstrip("/")
    with descriptors.closing(opening.openat2(target.root, path, _DIRECTORY, resolve=opening.NO_SYMLINKS)) as run:
        with contextlib.suppress(FileExistsError):
            os.mkdir(layout.NODE_DISK, mode=0o755, dir_fd=run)
        yield run


@contextlib.contextmanager
def _place(run: int) -> Iterator[int]:
    with descriptors.closing(opening.openat2(run, layout.NODE_DISK, _DIRECTORY, resolve=opening.NO_SYMLINKS)) as place:
        yield place


def _is_mount(run: int, place: int) -> bool:
    return os.fstat(run).st_dev != os.fstat(place).st_dev
