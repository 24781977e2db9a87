"""Configuration of a private session libvirtd: files below two directories, no privileges."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from apiserver.apis.virt.places import layout

LIBVIRTD: Final = "/usr/sbin/libvirtd"
QEMU_CONF: Final = """\
# Without virtlogd: QEMU's output goes into a file of libvirtd's, at most what the pod's volume holds.
stdio_handler = "file"
# A core would be a copy of QEMU's memory on the node's disk.
max_core = 0
# The container is the confinement; nothing in it may be changed by a process without capabilities.
security_driver = "none"
cgroup_controllers = []
# QEMU's own locks on images stay on; libvirt's would need virtlockd.
"""


def qemu_conf(certificates: Path, *, hugepages: bool) -> str:
    """Return the text of ``qemu.conf``; ``hugepages``: the pod has a mount of huge pages, the only one that libvirt may use.

    ``certificates`` must exist when libvirtd starts; its files, when a domain has a disk that needs them.
    """
    pages = f'hugetlbfs_mount = "{layout.HUGEPAGES_DIRECTORY}"\n' if hugepages else ""
    return f'{QEMU_CONF}nbd_tls_x509_cert_dir = "{certificates}"\n{pages}'


@dataclass(frozen=True, slots=True)
class Daemon:
    """Files, environment and configuration of a libvirtd, which the caller starts. A guest can make ``cache``, which has the logs, grow."""

    directory: Path
    cache: Path

    @property
    def uri(self) -> str:
        """Return the URI to connect to this libvirtd."""
        return f"qemu+unix:///session?socket={self.socket}"

    @property
    def socket(self) -> Path:
        """Return the path of libvirtd's socket."""
        return self.directory / "libvirt" / "libvirt-sock"

    def environment(self) -> dict[str, str]:
        """Return libvirtd's environment variables, which keep all its files below the two directories.

        They also turn off glibc's heaps and caches per thread, to save memory.
        """
        return {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(self.directory / "home"),
            "XDG_RUNTIME_DIR": str(self.directory),
            "XDG_CONFIG_HOME": str(self.directory / "config"),
            "XDG_CACHE_HOME": str(self.cache),
            "XDG_DATA_HOME": str(self.directory / "data"),
            "MALLOC_ARENA_MAX": "1",
            "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0",
            "LC_ALL": "C.UTF-8",
        }

    def prepare(self, host_uuid: str) -> None:
        """Create libvirtd's directories and write its configuration.

        ``host_uuid`` is unique per pod: libvirt refuses to migrate between equal ones, and its own default is the node's firmware UUID.
        """
        certificates = self.directory / Path(layout.NBD_CERTIFICATES_DIRECTORY).name
        for name in ("home", "config/libvirt", "data", "libvirt", certificates.name):
            (self.directory / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        configuration = self.directory / "config" / "libvirt"
        hugepages = Path(layout.HUGEPAGES_DIRECTORY).is_mount()
        (configuration / "qemu.conf").write_text(qemu_conf(certificates, hugepages=hugepages))
        (configuration / "libvirtd.conf").write_text(
            f'host_uuid = "{host_uuid}"\n'
            'log_outputs = "3:stderr"\n'
            # At most two clients: virt-launcher and, during a migration, the source's libvirtd.
            "min_workers = 2\nmax_workers = 4\nprio_workers = 1\nadmin_min_workers = 1\nadmin_max_workers = 1\n"
        )

    def capabilities(self, emulator: str) -> Path:
        """Return the path of libvirt's cache of an emulator's capabilities. libvirt detects whether it is outdated."""
        name = hashlib.sha256(emulator.encode()).hexdigest()
        return self.cache / "libvirt" / "qemu" / "cache" / "capabilities" / f"{name}.xml"

    def qemu_log(self, domain: str) -> Path:
        """Return the path of the log of a domain's QEMU."""
        return self.cache / "libvirt" / "qemu" / "log" / f"{domain}.log"
