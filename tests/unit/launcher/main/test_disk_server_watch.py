from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from launcher.domain import disks
from launcher.domain.states import State
from launcher.hypervisor.port import NO_SPACE, Observation
from launcher.main.lifecycle.disk_server_watch import may_go_on

DISKS: list[dict[str, Any]] = [{"name": name, "type": "NBD", "source": {"host": "nbd.example"}} for name in ("a", "b")]
DOMAIN = {"devices": {"disks": DISKS}}
STOPPED = Observation("guest", "u", "qemu", State.PAUSED, "I/O error", disk_errors=(("vda", "I/O error"), ("vdb", "I/O error")))


@pytest.mark.parametrize(
    ("seen", "answering", "expected"),
    [
        (STOPPED, {"a", "b"}, True),
        (STOPPED, {"a"}, False),
        (dataclasses.replace(STOPPED, disk_errors=(("vda", "I/O error"),)), {"a"}, True),
        (dataclasses.replace(STOPPED, disk_errors=(("vda", "I/O error"), ("vdz", "I/O error"))), {"a", "b"}, False),
        (dataclasses.replace(STOPPED, disk_errors=(("vda", NO_SPACE),)), {"a", "b"}, False),
        (dataclasses.replace(STOPPED, disk_errors=(("vda", NO_SPACE), ("vdb", "I/O error"))), {"a", "b"}, True),
        (dataclasses.replace(STOPPED, disk_errors=()), {"a", "b"}, False),
        (dataclasses.replace(STOPPED, state=State.RUNNING), {"a", "b"}, False),
        (None, {"a", "b"}, False),
    ],
)
def test_when_a_guest_may_go_on(seen: Observation | None, answering: set[str], *, expected: bool) -> None:
    assert may_go_on(seen, disks.names_by_target(DOMAIN), answering) is expected
