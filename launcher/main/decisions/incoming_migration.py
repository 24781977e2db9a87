"""The target's side of a live migration, as functions of state.

::

    prepared ─▶ running ─▶ arrived ─(released)─▶ succeeded
        │           └─────────┴──── it went away ────▶ failed
        └─▶ cancelled

A complete domain stays paused here until virt-handler releases it, after the source's QEMU has exited. Until then the guest belongs to the
source, and this copy may be destroyed at any time.
"""

from __future__ import annotations

import dataclasses

from launcher.domain.states import State
from launcher.hypervisor.port import Observation
from launcher.protocol import messages


def expected(status: messages.Status) -> messages.MigrationStatus | None:
    """Return this pod's incoming migration, even a failed or cancelled one, unless it succeeded; else None."""
    return next((item for item in status.migrations if item.direction == "incoming" and item.state != "succeeded"), None)


def advanced(known: messages.MigrationStatus, seen: Observation, now: float, *, releasing: bool) -> messages.MigrationStatus:
    """Return the incoming migration after the domain was observed here.

    ``releasing``: libvirt was called to resume the domain. A running one was released even if the answer was lost.
    """
    if releasing and seen.arrived and seen.state is not State.PAUSED:
        return dataclasses.replace(known, state="succeeded", end_time=now)
    if known.state in ("prepared", "running") and seen.arrived:
        return dataclasses.replace(known, state="arrived", start_time=known.start_time or now)
    if known.state == "prepared":
        return dataclasses.replace(known, state="running", start_time=now)
    return known


def lost(known: messages.MigrationStatus, now: float) -> messages.MigrationStatus:
    """Return the incoming migration without a domain here: failed if it ran or had arrived, else unchanged."""
    if known.state in ("running", "arrived"):
        return dataclasses.replace(known, state="failed", message="the domain did not arrive", end_time=now)
    return known
