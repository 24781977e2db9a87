"""User-readable causes of migrations that ended without moving the guest. Pure.

libvirt only reports the state of its sockets. Its text is in virt-launcher's log, and follows a guessed cause.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from apiserver.apis.virt import structure
from apiserver.apis.virt.lifecycle import power
from launcher.protocol import messages
from launcher.protocol.made_disks import UNSENT

BROKEN_CONNECTION: Final = (
    "client socket is closed",
    "end of file while reading",
    "cannot recv data",
    "cannot write data",
    "unable to write to socket",
    "unable to read from socket",
    "broken pipe",
    "connection reset",
    "connection refused",
    "connection was closed",
    "lost connection",
    "received hangup",
    "failed: input/output error",
)
"""Parts of messages about ended connections from libvirt (``rpc/virnetsocket.c``, ``rpc/virnetclient.c``, ``qemu/qemu_migration.c``), from
the target's QEMU about the guest's memory (``load of migration failed``), and from the source's QEMU about a copied disk (``migration of
disk vda failed``). Other errors would occur again.
"""

LIBVIRTD_AWAY: Final = "libvirtd is not connected"
"""virt-launcher's text while its libvirtd restarts: the migration did not start."""
_KILLED: Final = re.compile(r"unexpectedly closed the monitor(?: \(vm='[^']*'\))?\s*\Z", re.IGNORECASE)
"""libvirt's text for a killed QEMU; one that refused the guest would add its reason."""


def stop_of(vm: Mapping[str, Any] | None) -> str:
    """Return why this run of the guest should end, also for a restart; empty: it should continue, or the machine is None or invalid."""
    if vm is None or structure.of_virtual_machine(vm):
        return ""
    return power.end_asked_for(vm)


def is_off(launcher: messages.Status, stop: str) -> bool:
    """Return whether the guest has ended, or should end; ``stop`` is from :func:`stop_of`."""
    return launcher.stopping or launcher.ending is not None or bool(stop)


def is_broken_connection(report: messages.MigrationStatus) -> bool:
    """Return whether a failed migration's message tells of a broken connection, a restart of libvirtd, or a killed target QEMU."""
    said = report.message.lower()
    return any(part in said for part in (*BROKEN_CONNECTION, LIBVIRTD_AWAY, UNSENT)) or _KILLED.search(report.message) is not None


def may_pass(report: messages.MigrationStatus, launcher: messages.Status, stop: str) -> bool:
    """Return whether a failed migration may succeed if repeated: :func:`is_broken_connection`, and the guest continues here.

    ``stop`` is from :func:`stop_of`.
    """
    return report.state == "failed" and not is_off(launcher, stop) and is_broken_connection(report)


def of_failure(report: messages.MigrationStatus, launcher: messages.Status, stop: str, limit: str = "") -> str:
    """Return the cause of a migration that the source's virt-launcher reports as failed or cancelled.

    ``stop`` is from :func:`stop_of`; ``limit`` is the cause if a limit aborted it.
    """
    ending = launcher.ending
    if ending is not None and ending.kind == "shutdown":
        return "the guest powered itself off during the migration"
    if ending is not None and ending.kind == "crashed":
        return f"the guest ended during the migration: {ending.message}"
    if launcher.stopping or ending is not None or stop:
        return f"the virtual machine was stopped during the migration: {stop or 'its pod was deleted'}"
    if report.state == "cancelled":
        return limit or report.message or "the migration was aborted"
    if LIBVIRTD_AWAY in report.message:
        return f"libvirtd in the guest's pod ended and was restarted ({report.message})"
    if is_broken_connection(report) and UNSENT not in report.message:
        return (
            f"lost the connection to the target: its pod ended, virt-handler of one of the nodes restarted, or the network between the "
            f"nodes failed (libvirt: {report.message})"
        )
    return report.message or "the migration failed"
