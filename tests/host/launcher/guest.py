"""Guests of host tests, built once: Linux (Debian's cloud kernel and busybox), and the tiny kernel."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.host.launcher import vmlinux
from tests.testbed import caching, images, layout, progress

KERNEL: Final = "linux-image-cloud-amd64"
FULL_KERNEL: Final = "linux-image-amd64"
"""With drivers for hardware that clouds lack: USB."""
MODULES: Final = (
    "virtio_pci",
    "virtio_blk",
    "virtio_scsi",
    "sd_mod",
    "button",
    "evdev",
    "virtio_rng",
    "virtio_mem",
    "virtio_input",
    "sr_mod",
    "isofs",
    "efivarfs",
)
FORMAT: Final = "uncompressed, with stripped modules"
"""Part of the cache's key: guests spend no time on unpacking and on modules' signatures."""
USB_MODULES: Final = ("button", "evdev", "xhci_pci", "usbhid", "hid_generic", "usb_storage", "sd_mod")
INIT: Final = """#!/bin/busybox sh
export PATH=/bin:/sbin
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
for m in $(cat /lib/modules/order); do insmod /lib/modules/$m 2>/dev/null; done
for e in /sys/class/input/event*; do
 [ "$(cat $e/device/name 2>/dev/null)" = "Power Button" ] || continue
 ( dd if=/dev/input/$(basename $e) of=/dev/null bs=24 count=1 2>/dev/null; echo POWER-BUTTON > /dev/console; poweroff -f ) &
done
echo "GUEST-READY $(cut -d' ' -f1 /proc/uptime)"
while true; do setsid cttyhack sh; done
"""


@dataclass(frozen=True)
class Guest:
    directory: Path


def tiny_kernel() -> Path:
    sources = layout.REPOSITORY / "images" / "testguest" / "tiny"

    def compile_it(directory: Path) -> None:
        progress.run([sources / "build.sh", directory / "tiny"])

    return caching.once(layout.cache() / f"tiny-kernel-{images.digest_of([sources])}", "Compile the tiny kernel", compile_it) / "tiny"


def build(kernel: str = KERNEL, modules: Sequence[str] = MODULES, programs: Sequence[str] = ()) -> Guest:
    made_of = hashlib.sha256(f"{FORMAT}{modules}{INIT}{kernel.removeprefix(KERNEL)}{' '.join(programs)}".encode()).hexdigest()[:8]
    cache = layout.cache() / f"test-guest-{made_of}"
    return Guest(caching.once(cache, "Make the test guest", lambda work: _build(work, kernel, modules, programs)))


def _build(work: Path, package: str, modules: Sequence[str], programs: Sequence[str]) -> None:
    package = re.findall(r"Depends: (linux-image-\S+)", run("apt-cache", "depends", package))[0]
    run("apt-get", "download", package, cwd=work)
    kernel = work / "kernel"
    run("dpkg-deb", "-x", str(next(work.glob("*.deb"))), str(kernel))
    version = next((kernel / "lib/modules").iterdir()).name
    root = work / "root"
    for name in ("bin", "sbin", "proc", "sys", "dev", "tmp", "lib/modules"):
        (root / name).mkdir(parents=True)
    shutil.copy("/bin/busybox", root / "bin")
    copy_modules(kernel, modules, root, "order")
    for program in programs:
        _copy_program(program, root)
    (root / "init").write_text(INIT)
    (root / "init").chmod(0o755)
    archive = packed(root)
    shutil.copy(kernel / "boot" / f"vmlinuz-{version}", work / "vmlinuz")
    (work / "vmlinux").write_bytes(vmlinux.uncompressed((work / "vmlinuz").read_bytes()))
    shutil.rmtree(kernel)
    shutil.rmtree(root)
    (work / "initrd").write_bytes(archive)


def copy_modules(kernel: Path, modules: Sequence[str], root: Path, order: str) -> None:
    version = next((kernel / "lib/modules").iterdir()).name
    run("depmod", "-b", str(kernel), version)
    names: list[str] = []
    for module in modules:
        listed = run("modprobe", "-d", str(kernel), "-S", version, "--show-depends", module)
        for path in re.findall(r"^insmod (\S+)", listed, re.MULTILINE):
            if Path(path).name not in names:
                names.append(Path(path).name)
                shutil.copy(path, root / "lib/modules")
                if path.endswith(".ko"):  # not compressed
                    run("strip", "--strip-debug", str(root / "lib/modules" / Path(path).name))
    (root / "lib/modules" / order).write_text("\n".join(names))


def _copy_program(name: str, root: Path) -> None:
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    assert found is not None, name
    shutil.copy(found, root / "bin")
    for library in re.findall(r"(/\S+) \(0x", run("ldd", found)):
        place = root / library.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, place)


def packed(root: Path) -> bytes:
    names = "\n".join(str(path.relative_to(root)) for path in sorted(root.rglob("*")))
    return subprocess.run(["cpio", "-o", "-H", "newc", "--quiet"], cwd=root, input=names.encode(), capture_output=True, check=True).stdout


def run(*arguments: str, cwd: Path | None = None) -> str:
    environment = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
    return subprocess.run(arguments, cwd=cwd, env=environment, check=True, capture_output=True, text=True).stdout
