"""The guest's clock: ``<clock>``."""

from __future__ import annotations

from xml.etree.ElementTree import SubElement

from launcher.domain.definition import Definition, Tree


def append(tree: Tree, definition: Definition) -> None:
    """Append the clock and its timers."""
    clock = SubElement(tree.domain, "clock", offset="utc")
    if definition.accelerator == "kvm":  # the emulator knows neither tick policies nor a need for them
        SubElement(clock, "timer", name="rtc", tickpolicy="catchup")
        SubElement(clock, "timer", name="pit", tickpolicy="delay")
    SubElement(clock, "timer", name="hpet", present="no")
