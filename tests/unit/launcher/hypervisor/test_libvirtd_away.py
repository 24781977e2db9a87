from __future__ import annotations

import pytest

from handler.reconcilers.migrations import migration_causes
from launcher.hypervisor.connection import LibvirtHypervisor
from launcher.hypervisor.port import Unavailable


async def test_a_migration_says_that_libvirtd_is_away() -> None:
    with pytest.raises(Unavailable, match=migration_causes.LIBVIRTD_AWAY):
        await LibvirtHypervisor("test:///default").migrate("a", libvirt_uri="qemu+unix:///session", data_uri="unix:///data")
