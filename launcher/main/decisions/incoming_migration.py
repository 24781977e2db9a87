"""The target's side of a live migration, as functions of what is known.

::

    prepared ─▶ running ─▶ arrived ─(released)─▶ succeeded
        │           └─────────┴──── it went away ────▶ failed
        └─▶ cancelled

A domain that is complete here is paused and stays so until virt-handler releases it, which it does only once the source's launcher said
that its own QEMU is gone. Until then the guest is the source's, and this copy may be destroyed at any time.
"""

from __future__ import annotations

import dataclasses

from launcher.domain.states import State
from launcher.hypervisor.port import Observation
from launcher.protocol import messages


def expected(status: messages.Status) -> messages.MigrationStatus | None:
    """Return the migration by which the domain is to come here, until it was released."""
    return next((item for item in status.migrations if item.direction == "incoming" and item.state != "succeeded"), None)


def advanced(known: messages.MigrationStatus, seen: Observation, now: float, *, releasing: bool) -> messages.MigrationStatus:
    """Return the migration after the domain was seen here.

    Args:
        known: the migration before.
        seen: the domain.
        now: in Unix time.
        releasing: libvirt was asked to let the domain run, so one that runs was released, though the answer may have been lost.
    """
    if releasing and seen.arrived and seen.state is not State.PAUSED:
        return dataclasses.replace(known, state="succeeded", end_time=now)
    if known.state in ("prepared", "running") and seen.arrived:
        return dataclasses.replace(known, state="arrived", start_time=known.start_time or now)
    if known.state == "prepared":
        return dataclasses.replace(known, state="running", start_time=now)
    return known


def lost(known: messages.MigrationStatus, now: float) -> messages.MigrationStatus:
    """Return the migration after there was no domain to be seen here."""
    if known.state in ("running", "arrived"):
        return dataclasses.replace(known, state="failed", message="the domain did not arrive", end_time=now)
    return known
