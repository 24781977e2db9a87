"""Causes for which a migration ended without the guest having moved, in words that its user understands. Pure.

libvirt says what its sockets saw. A guest that is stopped while it moves ends as "client socket is closed" or "operation aborted" on the
source, because the other side's pod, or the job, went away; the cause is the stop. libvirt's own words stay in virt-launcher's log, and
stand behind the cause where that is a guess.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from apiserver.apis.virt import structure
from apiserver.apis.virt.lifecycle import power
from launcher.protocol import messages

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
"""Parts of what libvirt (``rpc/virnetsocket.c``, ``rpc/virnetclient.c``, ``qemu/qemu_migration.c``) says of a connection that ended, and
QEMU of the target when the guest's memory did (``load of migration failed``), or that of the source when a copied disk did
(``migration of disk vda failed``): any other error of its own would be met again."""

LIBVIRTD_AWAY: Final = "libvirtd is not connected"
"""Words of virt-launcher while libvirtd of its own pod is being started again: it was not asked to move the guest."""
_KILLED: Final = re.compile(r"unexpectedly closed the monitor(?: \(vm='[^']*'\))?\s*\Z", re.IGNORECASE)
"""Words of libvirt of a QEMU that ended without a word of its own: it was killed. One that refused the guest says why behind this."""


def stop_of(vm: Mapping[str, Any] | None) -> str:
    """Return why this run of the guest should end, by a restart, too; empty: it should go on, or it cannot be judged."""
    if vm is None or structure.of_virtual_machine(vm):
        return ""
    return power.end_asked_for(vm)


def is_off(launcher: messages.Status, stop: str) -> bool:
    """Return whether the guest has ended, or is to end."""
    return launcher.stopping or launcher.ending is not None or bool(stop)


def is_broken_connection(known: messages.MigrationStatus) -> bool:
    """Return whether the cause was a connection that ended, libvirtd that was away, or the target's QEMU that was killed."""
    said = known.message.lower()
    return any(part in said for part in (*BROKEN_CONNECTION, LIBVIRTD_AWAY)) or _KILLED.search(known.message) is not None


def may_pass(known: messages.MigrationStatus, launcher: messages.Status, stop: str) -> bool:
    """Return whether a migration that virt-launcher of the source calls failed may succeed at the next attempt, with another target pod.

    The guest goes on here and is to go on, and what broke is a connection or a process, which has nothing to do with the guest.
    """
    return known.state == "failed" and not is_off(launcher, stop) and is_broken_connection(known)


def of_failure(known: messages.MigrationStatus, launcher: messages.Status, stop: str, limit: str = "") -> str:
    """Return the cause of a migration that virt-launcher of the source calls failed or cancelled.

    Args:
        known: what virt-launcher says of the migration.
        launcher: what it says of the guest.
        stop: why the guest should end, as :func:`stop_of` says it; empty: it should go on.
        limit: the limit for which it was aborted, where it was; empty: for another reason.
    """
    ending = launcher.ending
    if ending is not None and ending.kind == "shutdown":
        return "the guest powered itself off while it moved"
    if ending is not None and ending.kind == "crashed":
        return f"the guest ended while it moved: {ending.message}"
    if launcher.stopping or ending is not None or stop:
        return f"the virtual machine was stopped while it moved: {stop or 'its pod was asked to end'}"
    if known.state == "cancelled":
        return limit or known.message or "the migration was aborted"
    if LIBVIRTD_AWAY in known.message:
        return f"libvirtd of the guest's pod was away, and is started again ({known.message})"
    if is_broken_connection(known):
        return (
            f"the connection to the target broke: its pod ended, virt-handler of one of the nodes was restarted, or "
            f"the network between them failed (libvirt: {known.message})"
        )
    return known.message or "the migration failed"
