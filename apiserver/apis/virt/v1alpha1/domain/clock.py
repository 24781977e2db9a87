"""Models and rules of ``clock``."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from apiserver.apis.meta.schema import Int32, Model
from apiserver.apis.meta.validation import FieldError, Path, forbidden, invalid
from apiserver.apis.virt.hardware import clock as hardware
from apiserver.apis.virt.v1alpha1.domain.rules import Object, validate_between

MAX_OFFSET_SECONDS: Final = 24 * 3600

_PRESENT: Final = "Whether the guest has it. Default true."


class ClockOffsetUTC(Model):
    """Coordinated Universal Time plus an offset in seconds."""

    offset_seconds: Int32 | None = Field(
        None, description="Seconds that the clock is ahead of UTC, at most a day in either direction. Default 0."
    )


class HPETTimer(Model):
    """The high precision event timer."""

    present: bool | None = Field(None, description="Whether the guest has it. Default false.")


class KVMTimer(Model):
    """KVM's own clock, preferred by Linux guests."""

    present: bool | None = Field(None, description=_PRESENT)


class HyperVTimer(Model):
    """Hyper-V's reference time, preferred by Windows guests."""

    present: bool | None = Field(None, description=_PRESENT)


class PITTimer(Model):
    """The programmable interval timer."""

    tick_policy: Literal["delay", "discard"] | None = Field(
        None,
        description="Treatment of missed ticks. delay: they come later, at the usual rate. discard: they are lost. Default delay.",
    )


class RTCTimer(Model):
    """The real-time clock."""

    tick_policy: Literal["delay", "catchup"] | None = Field(
        None,
        description="Treatment of missed ticks. delay: they come later, at the usual rate. catchup: at a higher rate, until the clock is "
        "right. Default catchup.",
    )
    track: Literal["guest", "wall"] | None = Field(
        None,
        description="Time that it follows. wall: the node's time, also while the guest is paused. guest: stops while the guest is paused. "
        "Default wall.",
    )


class Timer(Model):
    """The machine's timers. Emulated machines ignore kvm, hyperv and tick policies."""

    hpet: HPETTimer | None = Field(None, description="The high precision event timer.")
    hyperv: HyperVTimer | None = Field(None, description="Hyper-V's reference time. Default: none.")
    kvm: KVMTimer | None = Field(None, description="KVM's own clock. Default: there is one.")
    pit: PITTimer | None = Field(None, description="The programmable interval timer.")
    rtc: RTCTimer | None = Field(None, description="The real-time clock.")


class Clock(Model):
    """The clock that the guest reads at its start, and timers."""

    utc: ClockOffsetUTC | None = Field(None, description="The clock shows UTC. Default: UTC, unless timezone is set.")
    timezone: str | None = Field(
        None,
        description="The clock shows the time of this zone, such as Europe/Berlin; for guests that expect local time.",
    )
    timer: Timer | None = Field(None, description="Timers.")


def validate(domain: Object, path: Path) -> list[FieldError]:
    """Return errors in ``clock``, below ``path``."""
    clock, path = domain.get("clock") or {}, path.child("clock")
    found = []
    zone = clock.get("timezone")
    if zone is not None and not hardware.is_zone(zone):
        found.append(invalid(path.child("timezone"), zone, "must be the name of a time zone such as Europe/Berlin"))
    if zone is not None and clock.get("utc") is not None:
        found.append(forbidden(path.child("utc"), "may not be set together with timezone"))
    offset = (clock.get("utc") or {}).get("offsetSeconds")
    if offset is not None:
        found += validate_between(offset, -MAX_OFFSET_SECONDS, MAX_OFFSET_SECONDS, path.child("utc", "offsetSeconds"))
    return found
