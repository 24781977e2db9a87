"""Write down what guests with KVM can have of this node's processors: ``python3 -m launcher.hypervisor.capabilities FILE``.

It runs in virt-handler's pod before virt-handler does, from this image, because what counts is what this libvirt and this QEMU make of the
processors. No guest ever runs beside it, so virt-handler can believe the file; what a launcher says, a guest that took it over may say.

``FILE`` is JSON with two texts: ``domainCapabilities`` (https://libvirt.org/formatdomaincaps.html) and ``hostModel``, the ``<cpu>`` of
host-model with every feature that it has (virConnectBaselineHypervisorCPU). There is none where there is no KVM, or libvirt does not know.
libvirt keeps what it found out about QEMU beside it, which costs seconds the first time, and judges by itself whether that is out of date.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from pathlib import Path
from typing import Final
from xml.etree.ElementTree import Element, fromstring, tostring

import libvirt

from apiserver import logs

logger = logging.getLogger(__name__)

DEVICE: Final = Path("/dev/kvm")
SECONDS: Final = 120.0
"""QEMU answers in 4 s. virt-handler starts without the file rather than not at all."""
ARCHITECTURE: Final = "x86_64"
MACHINE: Final = "q35"
QEMU_CONF: Final = """\
security_driver = "none"
cgroup_controllers = []
user = "root"
group = "root"
"""


def ask(directory: Path, virt_type: str) -> dict[str, str]:
    """Return what libvirt says of guests of type ``kvm`` or ``qemu``, asked without a daemon; it keeps its files below ``directory``.

    Raises:
        libvirt.libvirtError: it does not know.
    """
    (directory / "etc").mkdir(parents=True, exist_ok=True)
    (directory / "etc" / "qemu.conf").write_text(QEMU_CONF)
    libvirt.virEventRegisterDefaultImpl()
    connection = libvirt.open(f"qemu:///embed?root={directory}")
    capabilities = connection.getDomainCapabilities(None, ARCHITECTURE, MACHINE, virt_type)
    flags = libvirt.VIR_CONNECT_BASELINE_CPU_EXPAND_FEATURES
    host = host_model(capabilities)
    expanded = connection.baselineHypervisorCPU(None, ARCHITECTURE, MACHINE, virt_type, [host], flags) if host else ""
    return {"domainCapabilities": capabilities, "hostModel": expanded}


def host_model(capabilities: str) -> str:
    """Return the ``<cpu>`` that is host-model in a document of domain capabilities; empty where there is none."""
    mode = fromstring(capabilities).find("cpu/mode[@name='host-model'][@supported='yes']")  # noqa: S314 - libvirt wrote it
    if mode is None:
        return ""
    cpu = Element("cpu")
    cpu.extend(mode)
    return tostring(cpu, encoding="unicode")


def main(arguments: list[str]) -> int:
    """Write the file, or say why there is none; the status is 0 either way."""
    logs.configure("info")
    (path,) = (Path(each) for each in arguments)
    path.unlink(missing_ok=True)
    if not DEVICE.exists():
        logger.info("there is no %s", DEVICE)
        return 0
    limit = threading.Timer(SECONDS, os._exit, (0,))  # a call that hangs in libvirt ends no other way
    limit.daemon = True
    limit.start()
    try:
        found = ask(path.parent / "libvirt", "kvm")
    except (libvirt.libvirtError, OSError) as error:
        logger.error("what guests with KVM can have here is not known: %s", error)  # noqa: TRY400 - the message says it
        return 0
    new = path.with_suffix(".new")
    new.write_text(json.dumps(found))
    new.replace(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
