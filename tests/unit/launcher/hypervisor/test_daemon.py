from __future__ import annotations

from pathlib import Path

from apiserver.apis.virt.places import layout
from launcher.hypervisor.daemon import QEMU_CONF, qemu_conf


def test_libvirt_is_told_of_huge_pages_only_where_there_are_some() -> None:
    certificates = Path("/certificates")
    assert qemu_conf(certificates, hugepages=False) == f'{QEMU_CONF}nbd_tls_x509_cert_dir = "/certificates"\n'
    assert f'hugetlbfs_mount = "{layout.HUGEPAGES_DIRECTORY}"' in qemu_conf(certificates, hugepages=True).splitlines()
