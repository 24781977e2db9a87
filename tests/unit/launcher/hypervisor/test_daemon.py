from __future__ import annotations

from apiserver.apis.virt import layout
from launcher.hypervisor.daemon import QEMU_CONF, qemu_conf


def test_libvirt_is_told_of_huge_pages_only_where_there_are_some() -> None:
    assert qemu_conf(hugepages=False) == QEMU_CONF
    assert f'hugetlbfs_mount = "{layout.HUGEPAGES_DIRECTORY}"' in qemu_conf(hugepages=True).splitlines()
