"""QEMU's threads that serve disks: ``<iothreads>``. The disk's own element selects one."""

from __future__ import annotations

from xml.etree.ElementTree import SubElement

from apiserver.apis.virt.hardware import io_threads as hardware
from launcher.domain.definition import Definition, Tree
from launcher.domain.values import InvalidSpecification


def append(tree: Tree, definition: Definition) -> None:
    """Append the number of I/O threads, if there are any."""
    if hardware.shared(definition.specification) < 0:
        raise InvalidSpecification("ioThreads.count: must not be negative")
    if total := hardware.total(definition.specification):
        SubElement(tree.domain, "iothreads").text = str(total)
