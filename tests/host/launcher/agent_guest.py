"""The tiny Linux guest with the real qemu-ga, in a second archive over the first initramfs.

Typing ``agent`` starts qemu-ga. The guest is a busybox, so dpkg-query is a script.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from pathlib import Path
from typing import Final

from tests.host.launcher import guest
from tests.host.launcher.guest import Guest
from tests.testbed import layout

MODULES: Final = ("virtio_console", "ext4")
AGENT: Final = """#!/bin/busybox sh
for m in $(cat /lib/modules/order2); do insmod /lib/modules/$m 2>/dev/null; done
port=
while [ -z "$port" ]; do
 for p in /sys/class/virtio-ports/*; do
  [ "$(cat $p/name 2>/dev/null)" = org.qemu.guest_agent.0 ] && port=/dev/${p##*/}
 done
 sleep 0.1
done
mkdir -p /var/run /run /etc /var/log
hostname web-1
printf 'ID=tiny\\nPRETTY_NAME="Tiny Guest 1"\\nVERSION_ID=1\\n' > /etc/os-release
exec qemu-ga --daemonize --method virtio-serial --path $port --pidfile /run/qemu-ga.pid --statedir /run "$@"
"""
SHUTDOWN: Final = """#!/bin/busybox sh
echo "shutdown $*" > /dev/console
reboot -f
"""
DPKG_QUERY: Final = """#!/bin/busybox sh
echo ran >> /tmp/listings
printf 'busybox\\t1.35.0\\nqemu-guest-agent\\t7.2\\n'
"""


CHPASSWD: Final = """#!/bin/busybox sh
cat > /tmp/chpasswd
echo >> /tmp/chpasswd
grep -q ^root: /tmp/chpasswd
"""
"""qemu-ga's program to set a password; this one knows only root."""


HWCLOCK: Final = """#!/bin/busybox sh
exit 0
"""
"""A program without which qemu-ga sets no clock."""


def build(base: Guest) -> Guest:
    """Return a copy of the guest ``base`` with qemu-ga, made at the first call on this machine."""
    made_of = hashlib.sha256(f"{base.directory.name}{MODULES}{AGENT}{SHUTDOWN}{DPKG_QUERY}{CHPASSWD}{HWCLOCK}".encode()).hexdigest()[:8]
    cache = layout.cache() / f"test-guest-agent-{made_of}"
    if not (cache / "initrd").exists():
        work = cache.with_suffix(f".{os.getpid()}")
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        for name in ("vmlinuz", "vmlinux"):
            os.link(base.directory / name, work / name)
        (work / "initrd").write_bytes((base.directory / "initrd").read_bytes() + _archive(base, work))
        shutil.rmtree(cache, ignore_errors=True)
        work.rename(cache)
    return Guest(cache)


def _archive(base: Guest, work: Path) -> bytes:
    root = work / "root"
    for name in ("bin", "sbin", "lib/modules", "lib64", "lib/x86_64-linux-gnu"):
        (root / name).mkdir(parents=True)
    _modules(base, work, root)
    guest.run("apt-get", "download", "qemu-guest-agent", cwd=work)
    package = work / "package"
    guest.run("dpkg-deb", "-x", str(next(work.glob("qemu-guest-agent*.deb"))), str(package))
    agent = next(path for path in package.rglob("qemu-ga") if path.is_file() and os.access(path, os.X_OK))
    shutil.copy(agent, root / "bin/qemu-ga")
    linked = guest.run("ldd", str(agent))
    assert "not found" not in linked, linked
    for library in re.findall(r"=> (/\S+)", linked):
        shutil.copy(library, root / "lib/x86_64-linux-gnu")
    shutil.copy("/lib64/ld-linux-x86-64.so.2", root / "lib64")
    for name, script in (
        ("bin/agent", AGENT),
        ("bin/dpkg-query", DPKG_QUERY),
        ("sbin/shutdown", SHUTDOWN),
        ("bin/chpasswd", CHPASSWD),
        ("sbin/hwclock", HWCLOCK),
    ):
        (root / name).write_text(script)
        (root / name).chmod(0o755)
    archive = guest.packed(root)
    for path in (root, package):
        shutil.rmtree(path)
    return archive


def _modules(base: Guest, work: Path, root: Path) -> None:
    kernel = work / "kernel"
    guest.run("dpkg-deb", "-x", str(next(base.directory.glob("linux-image*.deb"))), str(kernel))
    guest.copy_modules(kernel, MODULES, root, "order2")
    shutil.rmtree(kernel)
