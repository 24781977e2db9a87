"""Models and rules of a disk's ``ioTune``."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from apiserver.apis.meta import quantity
from apiserver.apis.meta.schema import Int64, Model, Quantity
from apiserver.apis.meta.validation import FieldError, Path, forbidden, invalid
from apiserver.apis.virt.hardware import disk_io_tune as hardware
from apiserver.apis.virt.v1alpha1.domain.rules import Object, validate_between, validate_bytes

MOST: Final = 10**15
"""For all limits, in QEMU (THROTTLE_VALUE_MAX)."""
_LEAST_BYTES: Final = quantity.parse("1")
_MOST_BYTES: Final = quantity.parse(str(MOST))


class IoTune(Model):
    """Limits of a guest's I/O on a disk: libvirt's ``<iotune>``."""

    total_bytes_sec: Quantity | None = Field(None, description="Bytes per second, reads and writes together.")
    read_bytes_sec: Quantity | None = Field(None, description="Bytes per second of reads.")
    write_bytes_sec: Quantity | None = Field(None, description="Bytes per second of writes.")
    total_iops_sec: Int64 | None = Field(None, description="Requests per second, reads and writes together.")
    read_iops_sec: Int64 | None = Field(None, description="Read requests per second.")
    write_iops_sec: Int64 | None = Field(None, description="Write requests per second.")
    total_bytes_sec_max: Quantity | None = Field(None, description="Maximum totalBytesSec of a single second.")
    read_bytes_sec_max: Quantity | None = Field(None, description="Highest readBytesSec of a single second.")
    write_bytes_sec_max: Quantity | None = Field(None, description="Highest writeBytesSec of a single second.")
    total_iops_sec_max: Int64 | None = Field(None, description="Highest totalIopsSec of a single second.")
    read_iops_sec_max: Int64 | None = Field(None, description="Highest readIopsSec of a single second.")
    write_iops_sec_max: Int64 | None = Field(None, description="Highest writeIopsSec of a single second.")


def validate(disk: Object, path: Path) -> list[FieldError]:
    """Return errors in a disk's ``ioTune`` at ``path``: QEMU limits both directions together or each alone, with higher bursts."""
    said = disk.get("ioTune") or {}
    found: list[FieldError] = []
    for name, value in said.items():
        if name in hardware.BYTES:
            found += validate_bytes(value, _LEAST_BYTES, _MOST_BYTES, path.child(name))
        else:
            found += validate_between(value, 1, MOST, path.child(name))
    if found:
        return found
    return [*_validate_directions(said, path), *_validate_bursts(hardware.limits(disk), path)]


def _validate_directions(said: Object, path: Path) -> list[FieldError]:
    return [
        forbidden(path.child(f"{direction}{rest}"), f"may not be set together with total{rest}")
        for rest in ("BytesSec", "IopsSec", "BytesSecMax", "IopsSecMax")
        for direction in ("read", "write")
        if f"total{rest}" in said and f"{direction}{rest}" in said
    ]


def _validate_bursts(limits: Object, path: Path) -> list[FieldError]:
    found = []
    for name, value in limits.items():
        limited = name.removesuffix("Max")
        if limited != name and limited not in limits:
            found.append(forbidden(path.child(name), f"needs {limited}"))
        elif limited != name and value < limits[limited]:
            found.append(invalid(path.child(name), value, f"must not be less than {limited}"))
    return found
