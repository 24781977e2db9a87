"""libvirt's cache of an emulator's capabilities, which saves libvirt a second's run of the emulator.

libvirt writes it again if any of these differs: libvirt's version, the change times of its programs, of the emulator and of its modules,
the processor, access to ``/dev/kvm``, and, with KVM, the kernel and the processor's microcode.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Emulator:
    """An emulator, and the file with libvirt's cache of its capabilities."""

    program: str
    cache: Path

    def keep(self, capabilities: str) -> int:
        """Write libvirt's cache before libvirt uses it; return its modification time in ns; without ``capabilities`` only return 0."""
        if not capabilities:
            return 0
        self.cache.parent.mkdir(parents=True, exist_ok=True)
        self.cache.write_text(capabilities)
        return self.cache.stat().st_mtime_ns

    def has(self, written: int) -> bool:
        """Return whether the cache still has this modification time, from :meth:`keep`: libvirt found it up to date."""
        return self.cache.exists() and self.cache.stat().st_mtime_ns == written
