"""Supervision of the guest's DHCP server."""

from __future__ import annotations

from pathlib import Path

from launcher.main.lifecycle.dhcp_watch import DhcpWatch
from launcher.main.lifecycle.record import Record
from launcher.protocol import messages


def test_each_look_mends_what_is_dead_and_takes_in_how_it_is(tmp_path: Path) -> None:
    told: list[int] = []
    record = Record(qemu_log=lambda _name: tmp_path / "log", status_changed=lambda: told.append(1))
    states = [messages.DhcpStatus(), messages.DhcpStatus(0, "no bridge", "gone"), messages.DhcpStatus(1, "", "gone")]
    left = list(states)
    watch = DhcpWatch(lambda: left.pop(0), record)
    for state in states:
        watch.look()
        assert record.known.status.dhcp == state
    assert len(told) == 2
