"""Debian 13's passt, as virt-launcher's image has it: Debian 12's cannot serve a card by vhost-user."""

import pathlib

from tests.testbed import caching, debian, emulator, layout

TITLE = "Fetch Debian 13's passt"
NAME = "passt"
PLACE = "/var/lib/kubevirt/passt"
"""Path at which the directory has to be mounted."""
_ROOT = f"{PLACE}/root"
_SCRIPT = f"""#!/bin/sh
exec {_ROOT}/{debian.LIBRARIES}/ld-linux-x86-64.so.2 --library-path {_ROOT}/{debian.LIBRARIES} {_ROOT}/usr/bin/passt "$@"
"""
WRAPPER = "emulator"
"""The file of the directory to be mounted in the place of the machine's emulator (:mod:`tests.testbed.emulator`)."""
_WRAPPER = f"""#!/bin/sh
exec {emulator.PLACE} "$@" -global virtio-net-pci.vectors=0
"""
# Debian 12's QEMU dies of a card of vhost-user that has MSI-X where it emulates the processor; Debian 13's does not.


def directory() -> pathlib.Path:
    """Return a directory to be mounted at ``PLACE``, in which ``passt`` is, and a wrapper of the machine's emulator.

    Raises:
        progress.StepFailed: it could not be fetched.
    """
    return caching.once(layout.cache() / "passt-13.2", TITLE, _fetch)


def _fetch(target: pathlib.Path) -> None:
    debian.unpack(target, (NAME, "libc6"), {NAME: _SCRIPT, WRAPPER: _WRAPPER})
