"""Character devices of macvtaps: offered to the kubelet by number before they exist, and found in pods.

virt-handler offers minor numbers, and makes the macvtap with the number that the container got (``handler.network.macvtap``). Used numbers
are refused.

The kernel chooses the major number when it loads the module ``macvtap``. A node without it offers nothing.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from apiserver.apis.meta import descriptors
from apiserver.apis.virt.places import names, network
from handler.devices import ownership
from handler.pods import opening

NUMBERS: Final = 64
"""Maximum macvtaps of guests on a node: to make one, all lower numbers may have to be occupied for a moment."""
DIRECTORY: Final = "kubevirt-macvtap"
"""Device nodes to copy into pods, below the kubelet's plugin directory, from which it removes only files."""
_DRIVER: Final = re.compile(r"^ *(\d+) macvtap$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Macvtaps:
    """The minor numbers for macvtaps, offered by ``handler.devices.plugin``."""

    directory: Path
    """Of the device nodes on the node."""
    resource: str = names.MACVTAP_RESOURCE
    name: str = "macvtap"
    has_preference: bool = True
    numbers: Path = Path("/sys/dev/char")
    """Lists devices of all network namespaces by number."""
    drivers: Path = Path("/proc/devices")

    def ids(self) -> tuple[str, ...]:
        """Return all device ids for the kubelet, one for each minor number."""
        return tuple(f"{self.name}{minor}" for minor in range(1, NUMBERS + 1))

    def paths(self, ids: Iterable[str]) -> tuple[tuple[str, str], ...]:
        """Return (path on the node, path in the container) of each of these valid ids."""
        return tuple((str(self.directory / str(minor)), path_of(minor)) for minor in self._minors(ids))

    def refusal(self, ids: Iterable[str]) -> str:
        """Return why a container cannot get these ids: numbers that another macvtap of the node has; empty if none."""
        major = driver(self.drivers)
        taken = [f"{major}:{minor}" for minor in self._minors(ids) if self._is_taken(major, minor)]
        return f"another macvtap of the node already has the number {' and '.join(taken)}" if taken else ""

    def preferred(self, available: Iterable[str], count: int) -> tuple[str, ...]:
        """Return ``count`` available ids, those of the lowest unused numbers first."""
        major = driver(self.drivers)
        order = sorted(self._minors(available), key=lambda minor: (self._is_taken(major, minor), minor))
        return tuple(f"{self.name}{minor}" for minor in order[:count])

    def _minors(self, ids: Iterable[str]) -> list[int]:
        own = set(self.ids())
        return [int(each.removeprefix(self.name)) for each in ids if each in own]

    def _is_taken(self, major: int | None, minor: int) -> bool:
        """Return whether a macvtap has this number; our placeholders, which occupy lower numbers for a moment, do not count."""
        try:
            link = (self.numbers / f"{major}:{minor}").readlink()
        except OSError:
            return False
        return not any(part.startswith(network.MACVTAP_HOLDER) for part in link.parts)

    def problem(self) -> str:
        """Make the device nodes; return why that failed, or empty."""
        major = driver(self.drivers)
        if major is None:
            return "the kernel module macvtap is not loaded on the node"
        try:
            self.directory.mkdir(mode=0o700, exist_ok=True)
            for minor in range(1, NUMBERS + 1):
                _make(self.directory / str(minor), os.makedev(major, minor))
        except OSError as error:
            return f"cannot create device nodes of macvtaps: {error}"
        return ""


def driver(devices: Path = Path("/proc/devices")) -> int | None:
    """Return the major number of macvtaps; None without the driver."""
    found = _DRIVER.search(devices.read_text())
    return int(found[1]) if found else None


def path_of(minor: int) -> str:
    """Return a macvtap's device path in the container, where libvirt looks for it."""
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
    """Return the macvtap devices that the kubelet made in a pod's /dev, the lowest first; none without ``major``.

    ``root``: descriptor of the pod's root directory.
    """
    try:
        directory = opening.openat2(root, "dev", os.O_RDONLY | os.O_DIRECTORY, resolve=opening.NO_SYMLINKS)
    except OSError:
        return ()
    with descriptors.closing(directory):
        return tuple(_found(directory, major)) if major is not None else ()


def _found(directory: int, major: int) -> Iterator[ownership.Node]:
    for minor in range(1, NUMBERS + 1):
        path = path_of(minor)
        try:
            found = os.stat(path.rpartition("/")[2], dir_fd=directory, follow_symlinks=False)
        except OSError:
            continue
        if stat.S_ISCHR(found.st_mode) and found.st_rdev == os.makedev(major, minor):
            yield ownership.Node(path, "char", (major, minor))
