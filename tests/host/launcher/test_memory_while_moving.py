"""A pod's memory while its booting guest migrates over a stalled connection."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launcher.main.lifecycle import outgoing_migration
from launcher.protocol import messages
from tests.damage import never_again
from tests.host.launcher import relay
from tests.host.launcher.sandbox import DEBIAN_KERNEL_BOOT, Launcher, a_machine

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]
CGROUPS = Path("/sys/fs/cgroup")
STALLED = 1.0
"""Rate of the connection in bytes per second."""
LIMIT_MEBIBYTES = 310
"""The guest is Linux, because QEMU keeps memory that a kernel frees while it sets up devices.

Its pod takes 222 MiB during the boot, and 328 MiB over a stalled connection (QEMU 7.2).
"""


@pytest.fixture
def bounded() -> Iterator[Callable[[Launcher], None]]:
    made: list[Path] = []

    def bound(launcher: Launcher) -> None:
        second = not (CGROUPS / "memory").is_dir()
        directory = (CGROUPS if second else CGROUPS / "memory") / f"pod{uuid.uuid4()}"
        directory.mkdir()
        made.append(directory)
        (directory / ("memory.max" if second else "memory.limit_in_bytes")).write_text(str(LIMIT_MEBIBYTES << 20))
        (directory / "cgroup.procs").write_text(str(launcher.process.pid))

    yield bound
    for directory in made:
        for _ in range(100):
            try:
                directory.rmdir()
                break
            except OSError:
                time.sleep(0.1)


def test_migration_is_aborted_before_the_guest_outgrows_its_pod(start: Callable[[], Launcher], bounded: Callable[[Launcher], None]) -> None:
    source, target = start(), start()
    machine = a_machine(firmware={"kernelBoot": DEBIAN_KERNEL_BOOT})
    bounded(source)
    with source.client() as at_source, target.client() as at_target, source.console() as viewer, relay.connected(source, target, STALLED):
        at_target.ask(messages.PrepareMigrationTarget("m1", machine))
        at_source.ask(messages.Sync(machine))
        (qemu,) = source.qemu()
        at_source.ask(messages.Migrate("m1"))
        viewer.expect("GUEST-READY", seconds=60)
        with never_again("two QEMU"):
            assert source.qemu() == [qemu]
        with source.client() as again:
            migration, domain = again.status.migration_of("m1"), again.status.domain
        assert migration is not None
        assert (migration.state, migration.message) == ("failed", outgoing_migration.MEMORY_ENDS)
        assert domain is not None
        assert domain.state == "running"
