"""Write the CPU features of KVM guests on this node: ``python3 -m launcher.hypervisor.capabilities FILE``.

It runs from virt-launcher's image as an init container of virt-handler, because the result depends on this libvirt and QEMU. virt-handler
trusts the file, because no guest ever runs in this pod. It could not trust a launcher, which its guest may control.

``FILE`` is JSON with two texts: ``domainCapabilities`` (https://libvirt.org/formatdomaincaps.html) and ``hostModel``, the ``<cpu>`` of
host-model with all its features (virConnectBaselineHypervisorCPU). There is no file without KVM or if libvirt fails. libvirt caches its
probe of QEMU, which takes seconds, next to the file, and checks by itself whether the cache is outdated.
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
"""QEMU answers in 4 s. After this time, virt-handler starts without the file."""
ARCHITECTURE: Final = "x86_64"
MACHINE: Final = "q35"
QEMU_CONF: Final = """\
security_driver = "none"
cgroup_controllers = []
user = "root"
group = "root"
"""


def ask(directory: Path, virt_type: str) -> dict[str, str]:
    """Return the content of ``FILE`` for guests of type ``kvm`` or ``qemu``. It needs no daemon, and writes files below ``directory``.

    Raises:
        libvirt.libvirtError: libvirt cannot tell.
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
    """Return the ``<cpu>`` of host-model in domain capabilities; empty if there is none."""
    mode = fromstring(capabilities).find("cpu/mode[@name='host-model'][@supported='yes']")  # noqa: S314 - libvirt wrote it
    if mode is None:
        return ""
    cpu = Element("cpu")
    cpu.extend(mode)
    return tostring(cpu, encoding="unicode")


def main(arguments: list[str]) -> int:
    """Write the file, or log why not. The exit status is always 0."""
    logs.configure("info")
    (path,) = (Path(each) for each in arguments)
    path.unlink(missing_ok=True)
    if not DEVICE.exists():
        logger.info("there is no %s", DEVICE)
        return 0
    limit = threading.Timer(SECONDS, os._exit, (0,))  # no other way ends a call that hangs in libvirt
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
