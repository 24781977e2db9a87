"""Character devices of macvtaps: offered to the kubelet by their numbers before there are any, and found again in pods.

QEMU opens a macvtap by a character device of its own, and the device cgroup of a container lets it open those that the kubelet gave it when
it started: before virt-handler can make a macvtap in the pod's network. So what is offered are minor numbers. A container that has one may
open the macvtap that will have this number, and virt-handler makes it the one of its pod (``handler.network.macvtap``). A number that a
macvtap has already is given to no container: it would be another guest's, or that of somebody else on the node.

The kernel chooses the driver's major number when its module ``macvtap`` is loaded; a node without it offers nothing.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from apiserver.apis.virt.places import names, network
from handler.devices import ownership
from handler.pods import opening

NUMBERS: Final = 64
"""Guests' macvtaps that a node can have: to take one, all lower numbers may have to be taken for a moment."""
DIRECTORY: Final = "kubevirt-macvtap"
"""Below the kubelet's directory for plugins, which it empties of files alone: device nodes to be copied into pods."""
_DRIVER: Final = re.compile(r"^ *(\d+) macvtap$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Macvtaps:
    """The minor numbers of this node's macvtaps, as ``handler.devices.plugin`` offers a device."""

    directory: Path
    """Directory of the node's device nodes, for the runtime."""
    resource: str = names.MACVTAP_RESOURCE
    name: str = "macvtap"
    has_preference: bool = True
    numbers: Path = Path("/sys/dev/char")
    """Directory in which the kernel names the devices of the node by their numbers, whatever network they are in."""
    drivers: Path = Path("/proc/devices")

    def ids(self) -> tuple[str, ...]:
        """Return what the kubelet hands out."""
        return tuple(f"{self.name}{minor}" for minor in range(1, NUMBERS + 1))

    def paths(self, ids: Iterable[str]) -> tuple[tuple[str, str], ...]:
        """Return (path on the node, path in the container) of some of them, of what is no id none."""
        return tuple((str(self.directory / str(minor)), path_of(minor)) for minor in self._minors(ids))

    def refusal(self, ids: Iterable[str]) -> str:
        """Return which of the numbers a macvtap of the node has already; empty when none has."""
        major = driver(self.drivers)
        taken = [f"{major}:{minor}" for minor in self._minors(ids) if self._is_taken(major, minor)]
        return f"a macvtap of the node has the number {' and '.join(taken)} already" if taken else ""

    def preferred(self, available: Iterable[str], count: int) -> tuple[str, ...]:
        """Return the lowest numbers that no macvtap has, and others behind them."""
        major = driver(self.drivers)
        order = sorted(self._minors(available), key=lambda minor: (self._is_taken(major, minor), minor))
        return tuple(f"{self.name}{minor}" for minor in order[:count])

    def _minors(self, ids: Iterable[str]) -> list[int]:
        known = set(self.ids())
        return [int(each.removeprefix(self.name)) for each in ids if each in known]

    def _is_taken(self, major: int | None, minor: int) -> bool:
        """Return whether a macvtap has the number, beside those that have lower ones for a moment while another is made."""
        try:
            link = (self.numbers / f"{major}:{minor}").readlink()
        except OSError:
            return False
        return not any(part.startswith(network.MACVTAP_HOLDER) for part in link.parts)

    def problem(self) -> str:
        """Make the device nodes, and return why there are none; empty when there are."""
        major = driver(self.drivers)
        if major is None:
            return "the node's kernel has not loaded its module macvtap"
        try:
            self.directory.mkdir(mode=0o700, exist_ok=True)
            for minor in range(1, NUMBERS + 1):
                _make(self.directory / str(minor), os.makedev(major, minor))
        except OSError as error:
            return f"make device nodes of macvtaps: {error}"
        return ""


def driver(devices: Path = Path("/proc/devices")) -> int | None:
    """Return the major number of macvtaps; None while the kernel has no driver for them."""
    found = _DRIVER.search(devices.read_text())
    return int(found[1]) if found else None


def path_of(minor: int) -> str:
    """Return the path in the container at which libvirt looks for the device."""
    return f"/dev/tap{network.MACVTAP_INDEX + minor}"


def _make(path: Path, number: int) -> None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        pass
    else:
        if stat.S_ISCHR(found.st_mode) and found.st_rdev == number:
            return
        path.unlink()
    os.mknod(path, 0o600 | stat.S_IFCHR, number)


def nodes(root: int, major: int | None) -> tuple[ownership.Node, ...]:
    """Return the devices that the pod whose root directory this is may open, the lowest first.

    Only root can make a device node, so one with the right number is one that the kubelet gave.
    """
    try:
        directory = opening.openat2(root, "dev", os.O_RDONLY | os.O_DIRECTORY, resolve=opening.NO_SYMLINKS)
    except OSError:
        return ()
    try:
        return tuple(_found(directory, major)) if major is not None else ()
    finally:
        os.close(directory)


def _found(directory: int, major: int) -> Iterator[ownership.Node]:
    for minor in range(1, NUMBERS + 1):
        path = path_of(minor)
        try:
            found = os.stat(path.rpartition("/")[2], dir_fd=directory, follow_symlinks=False)
        except OSError:
            continue
        if stat.S_ISCHR(found.st_mode) and found.st_rdev == os.makedev(major, minor):
            yield ownership.Node(path, "char", (major, minor))
