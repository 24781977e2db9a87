"""Print what libvirt knows of this node: ``python3 -m launcher.hypervisor.capabilities qemu|kvm``, the type of guests.

The output is JSON: ``cache``, libvirt's cache of QEMU's capabilities; for ``kvm`` also ``domainCapabilities``
(https://libvirt.org/formatdomaincaps.html) and ``hostModel``, the ``<cpu>`` of host-model with all its features
(virConnectBaselineHypervisorCPU). The input is an earlier ``cache``, which saves a probe of QEMU.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from xml.etree.ElementTree import Element, fromstring, tostring

import libvirt

from apiserver.apis.virt.places import layout
from launcher.hypervisor.daemon import LIBVIRTD, Daemon
from launcher.hypervisor.emulator import Emulator

ARCHITECTURE: Final = "x86_64"
MACHINE: Final = "q35"
CONNECT_SECONDS: Final = 0.02


def ask(virt_type: str, earlier: str) -> dict[str, str]:
    """Return libvirt's texts about guests of this type by name: ``cache``; for ``kvm`` also ``domainCapabilities`` and ``hostModel``.

    ``earlier`` is a former ``cache``, or empty. Raises libvirtError, also if libvirtd ends; OSError if it cannot be run, or writes no
    cache.
    """
    with tempfile.TemporaryDirectory(prefix="kv") as directory:
        daemon = Daemon(Path(directory) / "run", Path(directory) / "cache")
        emulator = Emulator(layout.EMULATOR, daemon.capabilities(layout.EMULATOR))
        emulator.keep(earlier)
        with _connected(daemon) as connection:
            capabilities = connection.getDomainCapabilities(layout.EMULATOR, ARCHITECTURE, MACHINE, virt_type)
            found = {"cache": emulator.cache.read_text()}
            if virt_type == "kvm":
                found |= {"domainCapabilities": capabilities, "hostModel": _expanded(connection, host_model(capabilities))}
            return found


def host_model(capabilities: str) -> str:
    """Return the ``<cpu>`` of host-model in domain capabilities; empty if there is none."""
    mode = fromstring(capabilities).find("cpu/mode[@name='host-model'][@supported='yes']")  # noqa: S314 - libvirt wrote it
    if mode is None:
        return ""
    cpu = Element("cpu")
    cpu.extend(mode)
    return tostring(cpu, encoding="unicode")


def _expanded(connection: libvirt.virConnect, host: str) -> str:
    flags = libvirt.VIR_CONNECT_BASELINE_CPU_EXPAND_FEATURES
    return str(connection.baselineHypervisorCPU(layout.EMULATOR, ARCHITECTURE, MACHINE, "kvm", [host], flags)) if host else ""


@contextlib.contextmanager
def _connected(daemon: Daemon) -> Iterator[libvirt.virConnect]:
    daemon.prepare(str(uuid.uuid4()))
    process = subprocess.Popen([LIBVIRTD], env=daemon.environment())
    try:
        with contextlib.closing(_open(daemon, process)) as connection:
            yield connection
    finally:
        process.terminate()
        process.wait()


def _open(daemon: Daemon, process: subprocess.Popen[bytes]) -> libvirt.virConnect:
    while True:
        try:
            return libvirt.open(daemon.uri)
        except libvirt.libvirtError:
            if process.poll() is not None:
                raise
            time.sleep(CONNECT_SECONDS)


def main() -> None:
    """Print the result of :func:`ask` as JSON; ``earlier`` comes from standard input."""
    libvirt.registerErrorHandler(lambda _context, _error: None, None)  # by default libvirt prints each error
    (virt_type,) = sys.argv[1:]
    json.dump(ask(virt_type, sys.stdin.read()), sys.stdout)


if __name__ == "__main__":
    main()
