"""Sockets between the guest and its node: ``<vsock>``."""

from __future__ import annotations

from xml.etree.ElementTree import SubElement

from apiserver.apis.virt.hardware import vsock as hardware
from launcher.domain.definition import Definition, Tree
from launcher.domain.values import one_of


def append(tree: Tree, definition: Definition) -> None:
    """Append the vsock device, if the machine has one.

    QEMU takes a free CID of the node's kernel when it starts, also on a migration's target.
    """
    if vsock := hardware.defaulted(definition.specification):
        element = SubElement(tree.devices, "vsock", model=one_of(hardware.MODELS, vsock["model"], "devices.vsock.model"))
        SubElement(element, "cid", auto="yes")
