"""Debian 13's passt, because Debian 12's does not support vhost-user."""

import pathlib

from tests.testbed import caching, debian, emulator, layout

TITLE = "Fetch Debian 13's passt"
NAME = "passt"
PLACE = "/var/lib/kubevirt/passt"
_ROOT = f"{PLACE}/root"
_SCRIPT = f"""#!/bin/sh
exec {_ROOT}/{debian.LIBRARIES}/ld-linux-x86-64.so.2 --library-path {_ROOT}/{debian.LIBRARIES} {_ROOT}/usr/bin/passt "$@"
"""
WRAPPER = "emulator"
_WRAPPER = f"""#!/bin/sh
exec {emulator.PLACE} "$@" -global virtio-net-pci.vectors=0
"""
# Debian 12's QEMU crashes in emulation with a vhost-user card that has MSI-X; Debian 13's does not.


def directory() -> pathlib.Path:
    return caching.once(layout.cache() / "passt-13.2", TITLE, _fetch)


def _fetch(target: pathlib.Path) -> None:
    debian.unpack(target, (NAME, "libc6"), {NAME: _SCRIPT, WRAPPER: _WRAPPER})
