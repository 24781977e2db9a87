"""The watchdog: ``<watchdog>``."""

from __future__ import annotations

from xml.etree.ElementTree import SubElement

from apiserver.apis.virt.hardware import watchdog as hardware
from launcher.domain.definition import Definition, Tree
from launcher.domain.values import one_of


def append(tree: Tree, definition: Definition) -> None:
    """Append the watchdog, if the machine has one."""
    if watchdog := hardware.defaulted(definition.specification):
        model = one_of(hardware.MODELS, watchdog["model"], "devices.watchdog.model")
        action = one_of(hardware.ACTIONS, watchdog["action"], "devices.watchdog.action")
        SubElement(tree.devices, "watchdog", model=model, action=action)
