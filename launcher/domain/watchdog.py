"""The watchdog: ``<watchdog>``."""

from __future__ import annotations

from typing import Final
from xml.etree.ElementTree import SubElement

from apiserver.apis.virt.hardware import watchdog as hardware
from launcher.domain.definition import Definition, Tree
from launcher.domain.values import one_of

_MODELS: Final = ("i6300esb",)
_ACTIONS: Final = ("reset", "shutdown", "poweroff", "pause", "none")


def append(tree: Tree, definition: Definition) -> None:
    """Append the watchdog, where the machine has one."""
    if watchdog := hardware.meant(definition.specification):
        model = one_of(_MODELS, watchdog["model"], "devices.watchdog.model")
        SubElement(tree.devices, "watchdog", model=model, action=one_of(_ACTIONS, watchdog["action"], "devices.watchdog.action"))
