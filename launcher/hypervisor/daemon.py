"""Configuration of a private session libvirtd: nothing but files below two directories, no privileges, no other daemon."""

from __future__ import annotations

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
    """Return ``qemu.conf``; without privileges libvirt looks for huge pages only where it is told to, and fails where there are none.

    The directory of the certificates has to be there when libvirtd begins; what is in it, when a domain has a disk that needs them.
    """
    pages = f'hugetlbfs_mount = "{layout.HUGEPAGES_DIRECTORY}"\n' if hugepages else ""
    return f'{QEMU_CONF}nbd_tls_x509_cert_dir = "{certificates}"\n{pages}'


@dataclass(frozen=True, slots=True)
class Daemon:
    """A libvirtd below ``directory``, whose cache and logs lie apart: a guest can make them grow."""

    directory: Path
    cache: Path

    @property
    def uri(self) -> str:
        """Return the URI of a connection to it."""
        return f"qemu+unix:///session?socket={self.socket}"

    @property
    def socket(self) -> Path:
        """Return where it listens: ``layout.LIBVIRT_SOCKET``."""
        return self.directory / "libvirt" / "libvirt-sock"

    def environment(self) -> dict[str, str]:
        """Return the variables that make it keep everything below the two directories.

        glibc gives each thread a heap of its own by default, which costs libvirtd's dozen threads megabytes and wins them nothing.
        """
        return {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(self.directory / "home"),
            "XDG_RUNTIME_DIR": str(self.directory),
            "XDG_CONFIG_HOME": str(self.directory / "config"),
            "XDG_CACHE_HOME": str(self.cache),
            "XDG_DATA_HOME": str(self.directory / "data"),
            "MALLOC_ARENA_MAX": "1",
            "LC_ALL": "C.UTF-8",
        }

    def prepare(self, host_uuid: str) -> None:
        """Write its configuration.

        Args:
            host_uuid: distinct per pod. libvirt refuses to migrate between hosts with the same one, and takes it from the node's
                firmware by default, which two pods of a node share.
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
            # Two clients at most: virt-launcher and, during a migration, the source's libvirtd.
            "min_workers = 2\nmax_workers = 4\nprio_workers = 1\nadmin_min_workers = 1\nadmin_max_workers = 1\n"
        )

    def qemu_log(self, domain: str) -> Path:
        """Return where the output of the QEMU of ``domain`` goes."""
        return self.cache / "libvirt" / "qemu" / "log" / f"{domain}.log"
