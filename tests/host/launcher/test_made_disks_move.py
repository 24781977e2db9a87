"""Disks made in the pod keep their bytes in a migration, whatever their sources contain."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import pytest

from handler.reconcilers.migrations import migration_causes
from launcher.protocol import messages
from tests.damage import never_again
from tests.host.launcher import relay
from tests.host.launcher.sandbox import NO_GRAPHICS, Launcher, Viewer, a_machine
from tests.host.launcher.test_migration import ended
from tests.mounted import mount

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]

CONFIG = {"name": "config", "type": "ConfigMap", "device": "disk", "source": {"name": "c"}}
MACHINE = a_machine(devices={**NO_GRAPHICS, "disks": [CONFIG]})
READ = (
    "echo 3 > /proc/sys/vm/drop_caches; dd if=/dev/vda bs=4096 iflag=direct 2>/dev/null | md5sum; cat /tmp/cd/greeting; "
    "dmesg | grep -c 'I/O error'"
)


def migrated(source: Launcher, target: Launcher, uid: str, *, cut: bool = False) -> messages.MigrationStatus:
    with source.client() as at_source, target.client() as at_target, relay.connected(source, target) as relays:
        at_target.ask(messages.PrepareMigrationTarget(uid, MACHINE, relays_made_disks=True))
        if cut:
            relays[3].cut()
        at_source.ask(messages.Migrate(uid, relays_made_disks=True))
        status = at_source.until(ended(uid), 90)
        found = status.migration_of(uid)
        assert found is not None
        if found.state == "succeeded":
            at_target.ask(messages.ReleaseMigration(uid))
        else:
            assert migration_causes.may_pass(found, status, "")
        return found


def test_guest_reads_the_same_bytes_after_two_migrations(start: Callable[[], Launcher]) -> None:
    """The ConfigMap of each pod differs, in size as well. The first attempt breaks."""
    pods = [start() for _ in range(4)]
    for number, pod in enumerate(pods):
        mount(pod.sources / "config", {"greeting": f"hello from {number}".encode(), "more": bytes(100_000 * number)})
    source, broken, middle, last = pods
    with ExitStack() as stack:
        viewer: Viewer = stack.enter_context(source.console())
        stack.enter_context(source.client()).ask(messages.Sync(MACHINE))
        viewer.expect("GUEST-READY", seconds=150)
        viewer.sh("mkdir -p /tmp/cd; mount -t iso9660 -o ro /dev/vda /tmp/cd")
        before = viewer.sh(READ)
        assert "hello from 0" in before
        assert migrated(source, broken, "m1", cut=True).state == "failed"
        with never_again("wrong bytes"):
            assert viewer.sh(READ) == before
        for number, (here, there) in enumerate(((source, middle), (middle, last)), 2):
            found = migrated(here, there, f"m{number}")
            assert found.state == "succeeded", found.message
            viewer = stack.enter_context(there.console())
            with never_again("wrong bytes"):
                assert viewer.sh(READ) == before
    assert (last.made / "config.iso").stat().st_mode & 0o777 == 0o600
