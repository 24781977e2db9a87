"""libvirt's caches of QEMU's capabilities on this node, for the launcher pods (:mod:`launcher.hypervisor.node_capabilities`)."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from launcher.protocol.messages import Accelerator

logger = logging.getLogger(__name__)

MAX_BYTES: Final = 400 << 10
"""QEMU 10 has 100 KiB, 270 with KVM. A request has no room for more."""


def read(directory: Path, accelerator: Accelerator) -> str:
    """Return libvirt's cache of QEMU's capabilities for guests of this type; empty if unusable."""
    path = directory / f"{accelerator}.xml"
    try:
        with path.open("rb") as file:
            found = file.read(MAX_BYTES + 1)
        if len(found) <= MAX_BYTES:
            return found.decode()
        logger.warning("%s has more than %d bytes and is not used", path, MAX_BYTES)
    except FileNotFoundError:
        pass
    except (OSError, UnicodeDecodeError) as error:
        logger.warning("the cache of QEMU's capabilities cannot be read: %s", error)
    return ""
