"""The guest's clock: ``<clock>``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from xml.etree.ElementTree import Element, SubElement

from apiserver.apis.virt.hardware import clock as hardware
from launcher.domain.definition import Definition, Tree
from launcher.domain.values import InvalidSpecification, word


def append(tree: Tree, definition: Definition) -> None:
    """Append the clock and its timers, those of KVM only with KVM."""
    clock = SubElement(tree.domain, "clock", _offset(definition.specification))
    said = hardware.timers(definition.specification)
    _append_rtc(clock, said.get("rtc") or {}, definition)
    if definition.accelerator == "kvm":  # the emulator has no tick policies, nor the other two timers
        policy = word((said.get("pit") or {}).get("tickPolicy") or "delay", "clock.timer.pit.tickPolicy")
        SubElement(clock, "timer", name="pit", tickpolicy=policy)
        for name, timer in (("kvm", "kvmclock"), ("hyperv", "hypervclock")):
            if name in said:
                SubElement(clock, "timer", name=timer, present=_yes(is_so=hardware.is_present(definition.specification, name)))
    SubElement(clock, "timer", name="hpet", present=_yes(is_so=hardware.is_present(definition.specification, "hpet")))


def zone(specification: Mapping[str, Any]) -> str:
    """Return the guest's time zone; empty for UTC. Raises InvalidSpecification for an invalid name."""
    given = (specification.get("clock") or {}).get("timezone")
    if given is not None and (not isinstance(given, str) or not hardware.ZONE.fullmatch(given)):
        raise InvalidSpecification(f"clock.timezone: {given!r} is not a time zone")
    return given or ""


def _offset(specification: Mapping[str, Any]) -> dict[str, str]:
    if name := zone(specification):
        return {"offset": "timezone", "timezone": name}
    if seconds := int(((specification.get("clock") or {}).get("utc") or {}).get("offsetSeconds") or 0):
        return {"offset": "variable", "adjustment": str(seconds), "basis": "utc"}
    return {"offset": "utc"}


def _append_rtc(clock: Element, said: Mapping[str, Any], definition: Definition) -> None:
    rtc = {"track": word(said["track"], "clock.timer.rtc.track")} if said.get("track") else {}
    if definition.accelerator == "kvm":
        rtc["tickpolicy"] = word(said.get("tickPolicy") or "catchup", "clock.timer.rtc.tickPolicy")
    if rtc:
        SubElement(clock, "timer", {"name": "rtc", **rtc})


def _yes(*, is_so: bool) -> str:
    return "yes" if is_so else "no"
