"""``test_free_space`` explains tries, errors and file systems."""

from __future__ import annotations

import dataclasses

import pytest

from launcher.domain.states import State
from launcher.hypervisor.port import NO_SPACE, DiskFault, Observation
from launcher.main.decisions import full_disks
from launcher.main.decisions.full_disks import ENOUGH_BYTES, Failing, Tracked, Tries
from launcher.protocol import messages

STOPPED = Observation("guest", "u", "qemu", State.PAUSED, "I/O error", disk_errors=(("vda", NO_SPACE), ("vdz", NO_SPACE)))
FAULT = DiskFault("vdb", "I/O error", False, 100.0)


def test_disks_that_fail_have_the_machines_names() -> None:
    seen = dataclasses.replace(STOPPED, disk_faults=(FAULT, dataclasses.replace(FAULT, disk="vdy")))
    found = full_disks.failing(seen, {"vda": "root", "vdb": "data"})
    assert found == Failing({"data": FAULT}, frozenset({"root", "vdz"}))
    assert found.names == {"data", "root", "vdz"}


STANDS = Failing({}, frozenset({"root"}))


@pytest.mark.parametrize(
    ("tries", "free", "stands", "offer"),
    [
        (Tries(), {"root": ENOUGH_BYTES}, True, True),
        (Tries(), {}, True, True),
        (Tries(), {"root": ENOUGH_BYTES - 1}, True, False),
        (Tries(), {"root": ENOUGH_BYTES}, False, False),
        (Tries(offered=True), {"root": ENOUGH_BYTES}, True, False),
        (Tries(next=100.5), {"root": ENOUGH_BYTES}, True, False),
    ],
)
def test_a_guest_is_offered_to_go_on_once(tries: Tries, free: dict[str, int], *, stands: bool, offer: bool) -> None:
    tracked, faults, found = full_disks.outcome(Tracked(tries), STANDS, free, 100.0, stands=stands)
    assert (found, faults) == (offer, ())
    assert tracked.tries == (dataclasses.replace(tries, offered=True, stood=100.0) if offer else tries)


def test_a_look_remembers_which_disks_were_full() -> None:
    failing = Failing({"data": FAULT}, frozenset())
    tracked, faults, _ = full_disks.outcome(Tracked(), failing, {"data": 0}, 100.0, stands=False)
    assert faults == (messages.DiskFault("data", full=True),)
    assert tracked.full == {"data": 100.0}
    tracked, faults, _ = full_disks.outcome(tracked, failing, {"data": ENOUGH_BYTES}, 105.0, stands=False)
    assert faults == (messages.DiskFault("data", full=True),)
    assert tracked.full == {"data": 100.0}
    _, faults, _ = full_disks.outcome(tracked, failing, {"data": ENOUGH_BYTES}, 200.0, stands=False)
    assert faults == ()
