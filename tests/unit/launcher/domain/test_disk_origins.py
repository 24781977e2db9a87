from __future__ import annotations

from typing import Any

import pytest

from launcher.domain import disk_origins
from launcher.domain.disk_origins import Found

CLAIM: dict[str, Any] = {"name": "root", "type": "PersistentVolumeClaim", "source": {"name": "c"}}
IMAGE: dict[str, Any] = {"name": "root", "type": "Image", "source": {"reference": "i"}}


@pytest.mark.parametrize(
    ("disk", "found", "expected"),
    [
        (CLAIM, "qcow2", "raw"),
        (CLAIM, "raw", "raw"),
        ({**CLAIM, "readOnly": True}, "qcow2", "raw"),
        (IMAGE, "raw", "qcow2"),
        ({**IMAGE, "readOnly": True}, "qcow2", "qcow2"),
        ({**IMAGE, "device": "cdrom"}, "raw", "raw"),
    ],
)
def test_a_claim_is_raw_whatever_is_found_in_it(disk: dict[str, Any], found: disk_origins.Format, expected: str) -> None:
    (origin,) = disk_origins.origins({"devices": {"disks": [disk]}})
    assert disk_origins.format_of(origin, Found(format=found)) == expected


def test_cdrom_is_always_read_only() -> None:
    (origin,) = disk_origins.origins({"devices": {"disks": [{**CLAIM, "device": "cdrom", "readOnly": False}]}})
    assert origin.read_only
