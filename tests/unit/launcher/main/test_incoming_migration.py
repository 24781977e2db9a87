from __future__ import annotations

import pytest

from launcher.domain.states import State
from launcher.hypervisor.port import Observation
from launcher.main.decisions.incoming_migration import advanced, expected, lost
from launcher.protocol import messages


@pytest.mark.parametrize(
    ("known", "state", "reason", "then"),
    [
        ("prepared", State.PAUSED, "migrating", "running"),
        ("prepared", State.PAUSED, "user", "arrived"),  # it arrived between two looks
        ("prepared", State.RUNNING, "unpaused", "succeeded"),
        ("running", State.PAUSED, "migrating", "running"),
        ("running", State.PAUSED, "user", "arrived"),
        ("arrived", State.PAUSED, "user", "arrived"),
        ("running", State.SHUTDOWN, "unknown", "running"),  # libvirt ends the QEMU of an aborted migration
        ("arrived", State.SHUTDOWN, "unknown", "arrived"),
        ("running", State.PAUSED, "shutting down", "running"),
        ("arrived", State.RUNNING, "unpaused", "succeeded"),
        ("arrived", State.PMSUSPENDED, "unknown", "succeeded"),
        ("running", State.NOSTATE, "unknown", "running"),  # from a later libvirt
        ("failed", State.PAUSED, "user", "failed"),
        ("cancelled", State.PAUSED, "user", "cancelled"),
    ],
)
def test_how_far_a_domain_is_follows_from_one_look_at_it(known: messages.MigrationState, state: State, reason: str, then: str) -> None:
    found = advanced(
        messages.MigrationStatus("m1", "incoming", known), Observation("guest", "u-1", "qemu", state, reason), 7.0, releasing=True
    )

    assert found.state == then
    assert bool(found.end_time) == (then == "succeeded")


@pytest.mark.parametrize(("start_time", "then"), [(0.0, 7.0), (3.0, 3.0)])
def test_unnoticed_migration_starts_with_its_arrival(start_time: float, then: float) -> None:
    known = messages.MigrationStatus("m1", "incoming", "running", start_time=start_time)
    assert advanced(known, Observation("guest", "u-1", "qemu", State.PAUSED, "user"), 7.0, releasing=False).start_time == then


@pytest.mark.parametrize("known", ["prepared", "running", "arrived"])
@pytest.mark.parametrize("state", [State.RUNNING, State.PAUSED])
def test_unreleased_migration_is_not_succeeded(known: messages.MigrationState, state: State) -> None:
    seen = Observation("guest", "u-1", "qemu", state, "user")
    assert advanced(messages.MigrationStatus("m1", "incoming", known), seen, 7.0, releasing=False).state in ("running", "arrived")


@pytest.mark.parametrize(
    ("migrations", "uid"),
    [
        ((), ""),
        ((messages.MigrationStatus("m1", "incoming", "prepared"),), "m1"),
        ((messages.MigrationStatus("m1", "incoming", "failed"),), "m1"),
        ((messages.MigrationStatus("m1", "incoming", "succeeded"),), ""),
        ((messages.MigrationStatus("m1", "outgoing", "running"),), ""),
        ((messages.MigrationStatus("m1", "incoming", "succeeded"), messages.MigrationStatus("m2", "outgoing", "failed")), ""),
    ],
)
def test_a_domain_is_expected_until_it_was_released(migrations: tuple[messages.MigrationStatus, ...], uid: str) -> None:
    found = expected(messages.Status(1, migrations=migrations))
    assert (found.uid if found is not None else "") == uid


@pytest.mark.parametrize("known", ["running", "arrived"])
def test_vanished_arrival_has_failed(known: messages.MigrationState) -> None:
    assert lost(messages.MigrationStatus("m1", "incoming", known), 7.0).state == "failed"


@pytest.mark.parametrize("known", ["prepared", "succeeded", "failed", "cancelled"])
def test_migration_not_yet_here_is_not_lost(known: messages.MigrationState) -> None:
    status = messages.MigrationStatus("m1", "incoming", known)
    assert lost(status, 7.0) is status
