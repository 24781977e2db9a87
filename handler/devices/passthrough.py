"""Prepare passed-through devices in a pod: device nodes of their IOMMU groups, and the right to lock memory.

A device may write to the guest's memory at any time, so all of it must be locked. libvirt keeps a limit that is high enough, and child
processes inherit it.
"""

from __future__ import annotations

import logging
import os
import re
import resource
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from apiserver.apis.meta import descriptors
from apiserver.apis.virt.places import layout
from handler.devices import ownership
from handler.pods import opening

logger = logging.getLogger(__name__)

LOCKED_BEYOND_GUEST: Final = 2 << 30
"""libvirt requests the guest's memory plus one GiB for the devices."""
MAX_GROUPS: Final = 64
MAX_PROCESSES: Final = 64
"""How many processes' children are read: a compromised launcher may start any number."""
_GROUP: Final = re.compile(r"vfio|\d{1,6}")


def groups(root: int) -> list[ownership.Node]:
    """Return a Node for each IOMMU group's device in a pod; ``root`` is a descriptor of its root directory."""
    try:
        directory = opening.openat2(root, "dev/vfio", os.O_RDONLY | os.O_DIRECTORY, resolve=opening.NO_SYMLINKS)
    except FileNotFoundError:
        return []
    with descriptors.closing(directory):
        names = sorted(name for name in os.listdir(directory) if _GROUP.fullmatch(name))  # noqa: PTH208 - of a descriptor
    return [ownership.Node(f"/dev/vfio/{name}", "char", required=False) for name in names[:MAX_GROUPS]]


def allow_locking(launcher: int, guest_bytes: int, *, proc: Path = Path("/proc")) -> None:
    """Let process ``launcher`` and its descendants lock the guest's memory. A failure is only logged; libvirt reports its consequence."""
    limit = guest_bytes + LOCKED_BEYOND_GUEST
    for pid in (launcher, *_children(launcher, proc)):
        try:
            if (proc / str(pid)).stat().st_uid != layout.USER_ID:
                continue
            soft, hard = resource.prlimit(pid, resource.RLIMIT_MEMLOCK)
            wanted = (_higher(soft, limit), _higher(hard, limit))
            if (soft, hard) != wanted:
                resource.prlimit(pid, resource.RLIMIT_MEMLOCK, wanted)
        except (FileNotFoundError, ProcessLookupError):
            continue
        except PermissionError as error:
            logger.warning("cannot raise the limit of locked memory of process %d: %s", pid, error)


def _higher(limit: int, wanted: int) -> int:
    return limit if limit == resource.RLIM_INFINITY else max(limit, wanted)


def _children(pid: int, proc: Path) -> Iterator[int]:
    found = deque([pid])
    for _ in range(MAX_PROCESSES):
        if not found:
            return
        for listed in (proc / str(found.popleft()) / "task").glob("*/children"):
            try:
                children = [int(each) for each in listed.read_text().split()[:MAX_PROCESSES]]
            except (FileNotFoundError, ProcessLookupError):
                continue
            yield from children
            found += children
