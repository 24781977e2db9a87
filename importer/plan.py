"""Plan of an import, which virt-launcher writes to our standard input."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from importer.failures import ImportFailed

MAX_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Plan:
    """The image to import, and where to."""

    directory: Path
    """The mounted claim; unused with a ``device``."""
    source: dict[str, Any]
    """``source.import`` of the disk."""
    size: int | None = None
    """Bytes of the disk; None: the image's size."""
    secret: Path | None = None
    authorities: Path | None = None
    """File of trusted authorities, instead of the system's."""
    device: Path | None = None
    qemu_img: str = "/usr/bin/qemu-img"

    @property
    def format(self) -> str | None:
        """Return the image format that the user specified, or None."""
        return self.source.get("format") or None

    @property
    def checksum(self) -> tuple[str, str] | None:
        """Return the user's checksum as algorithm and digest in lower case, or None."""
        algorithm, _, digest = str(self.source.get("checksum") or "").partition(":")
        return (algorithm, digest.lower()) if digest else None


def read(document: bytes) -> Plan:
    """Parse virt-launcher's import plan (JSON). Raises ImportFailed."""
    try:
        given = json.loads(document)
        if not given.get("directory") and not given.get("device"):
            raise ValueError("the import plan names no claim")
        return Plan(
            directory=Path(given.get("directory") or ""),
            source=dict(given["source"]),
            size=None if given.get("size") is None else int(given["size"]),
            secret=Path(given["secret"]) if given.get("secret") else None,
            authorities=Path(given["authorities"]) if given.get("authorities") else None,
            device=Path(given["device"]) if given.get("device") else None,
            **({"qemu_img": str(given["qemuImg"])} if given.get("qemuImg") else {}),
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ImportFailed(f"cannot parse virt-launcher's import plan: {type(error).__name__}") from error
