"""Debian 13's virtiofsd, because older ones need privileges."""

import pathlib

from tests.testbed import caching, debian, layout

TITLE = "Fetch Debian 13's virtiofsd"
NAME = "virtiofsd"
_PLACE = "/usr/libexec"
_PACKAGES = ("virtiofsd", "libc6", "libgcc-s1", "libseccomp2", "libcap-ng0")
_LIBRARIES = "usr/lib/x86_64-linux-gnu"
_SCRIPT = f"""#!/bin/sh
exec {_PLACE}/root/{_LIBRARIES}/ld-linux-x86-64.so.2 --library-path {_PLACE}/root/{_LIBRARIES} {_PLACE}/root/usr/libexec/virtiofsd "$@"
"""


def directory() -> pathlib.Path:
    return caching.once(layout.cache() / "virtiofsd-13", TITLE, _fetch)


def _fetch(target: pathlib.Path) -> None:
    debian.unpack(target, _PACKAGES, {NAME: _SCRIPT})
