"""Models and rules of ``ioThreads``."""

from __future__ import annotations

from pydantic import Field

from apiserver.apis.meta.schema import Int32, Model
from apiserver.apis.meta.validation import FieldError, Path
from apiserver.apis.virt.hardware import io_threads as hardware
from apiserver.apis.virt.v1alpha1.domain.rules import Object, validate_between


class IOThreads(Model):
    """Threads of QEMU that serve virtio disks instead of its main thread."""

    count: Int32 | None = Field(
        None,
        description="Number of shared threads. Disks without dedicatedIOThread are assigned to them in turn. Default 0: QEMU's main "
        "thread serves them.",
    )


def validate(domain: Object, path: Path) -> list[FieldError]:
    """Return errors in ``ioThreads``, below ``path``."""
    count = (domain.get("ioThreads") or {}).get("count")
    return [] if count is None else validate_between(count, 0, hardware.MAX, path.child("ioThreads", "count"))
