from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from launcher.protocol import messages
from tests.damage import never_again
from tests.host.launcher import relay
from tests.host.launcher.observer import observing
from tests.host.launcher.sandbox import NO_GRAPHICS, Client, Launcher, Viewer, a_machine

pytestmark = pytest.mark.host
MIB = 1 << 20
SLOW = 6e6
DIGEST = "registry.example/golden@sha256:" + "0" * 64
SCRATCH = {"name": "scratch", "type": "EmptyDisk", "source": {"size": "64Mi"}}
WRITER = (
    "(i=0; while true; do i=$((i+1)); printf '%08d' $i | dd of=/dev/vda bs=512 seek=$((i % 64)) conv=notrunc,sync,fsync 2>/dev/null;"
    " echo wrote-$i.; sleep 0.1; done) &\n"
)
"""Writes numbers to sectors, and prints each once it is on the disk."""
NEWEST = "dd if=/dev/vda bs=512 count=64 iflag=direct 2>/dev/null | tr '\\0' '\\n' | sort -n | tail -n 1"
BEGINNING = MIB


@dataclass
class Pair:
    source: Launcher
    target: Launcher
    at_source: Client
    at_target: Client
    viewer: Viewer


def machine_with(*disks: dict[str, Any], **domain: Any) -> messages.Machine:
    return a_machine(devices={**NO_GRAPHICS, "disks": list(disks)}, **domain)


@pytest.fixture
def moving(start: Callable[[], Launcher]) -> Iterator[Callable[..., Pair]]:
    with ExitStack() as stack:

        def begin(machine: messages.Machine, lay_out: Callable[[Launcher, bool], None] = lambda _pod, _is_source: None) -> Pair:
            source, target = start(), start()
            lay_out(source, True)
            lay_out(target, False)
            at_source, at_target = stack.enter_context(source.client()), stack.enter_context(target.client())
            viewer = stack.enter_context(source.console())
            assert at_source.ask(messages.Sync(machine)).not_migratable == ""
            at_target.ask(messages.PrepareMigrationTarget("m1", machine, relays_disks=True))
            viewer.expect("GUEST-READY", 120)
            viewer.expect("# ")
            return Pair(source, target, at_source, at_target, viewer)

        yield begin


def ended(uid: str) -> Callable[[messages.Status], bool]:
    def condition(status: messages.Status) -> bool:
        migration = status.migration_of(uid)
        return migration is not None and migration.state in ("succeeded", "failed", "cancelled")

    return condition


def figures(status: messages.Status, uid: str = "m1") -> messages.MigrationStatus:
    return status.migration_of(uid) or messages.MigrationStatus(uid, "outgoing", "running")


def sums(viewer: Viewer, *devices: str, skip: int = 0) -> str:
    viewer.sh("sync; echo 3 > /proc/sys/vm/drop_caches")
    return viewer.sh("; ".join(f"dd if={each} bs=1048576 skip={skip} iflag=direct 2>/dev/null | md5sum" for each in devices))


def fill(viewer: Viewer, device: str, mebibytes: int, seek: int = 0) -> None:
    viewer.sh(f"dd if=/dev/urandom of={device} bs=1048576 seek={seek} count={mebibytes} conv=notrunc,fsync 2>/dev/null")


def a_golden_claim(pod: Launcher, _is_source: bool) -> None:
    image = pod.disks / "golden/disk.img"
    image.parent.mkdir()
    image.write_bytes(bytes(range(256)) * (16 * MIB // 256))
    os.truncate(image, 32 * MIB)
    subprocess.run(["chown", "-R", "107:107", pod.disks], check=True)


def stored(pod: Launcher, name: str) -> int:
    return (pod.overlays / f"{name}.qcow2").stat().st_blocks * 512


@pytest.mark.timeout(300)
def test_copied_disks_are_complete_and_only_written_data_move(moving: Callable[..., Pair]) -> None:
    golden = {"name": "golden", "type": "PersistentVolumeClaim", "source": {"name": "golden", "ephemeral": True}}
    pair = moving(machine_with({**SCRATCH, "dedicatedIOThread": True}, golden), a_golden_claim)
    fill(pair.viewer, "/dev/vda", 12)
    fill(pair.viewer, "/dev/vdb", 3, seek=5)
    before = sums(pair.viewer, "/dev/vda", "/dev/vdb", skip=1)
    pair.viewer.type(WRITER)
    pair.viewer.expect("wrote-5.")
    with relay.connected(pair.source, pair.target, 3e6) as relays, observing(pair.source, pair.target):
        relays[2].rate = 3e5
        pair.at_source.ask(messages.Migrate("m1", relays_disks=True))
        copying = figures(pair.at_source.until(lambda status: figures(status).data_processed_bytes > 0, 60))
        relays[2].rate = 3e6
        assert copying.memory_total_bytes == 0
        assert copying.data_total_bytes >= 15 * MIB
        assert copying.bytes_per_second > 0
        status = pair.at_source.until(ended("m1"), 90)
        assert figures(status).state == "succeeded", figures(status).message
        with never_again("two QEMU"):
            assert pair.source.qemu() == []
        assert relays[2].connections == 2
        written = [int(each) for each in re.findall(rb"wrote-(\d+)\.", pair.viewer.seen)]
        with pair.target.console() as viewer:
            pair.at_target.ask(messages.ReleaseMigration("m1"))
            viewer.expect("wrote-")
            viewer.expect("wrote-")
            viewer.type("kill $!\n")
            with never_again("a lost write"):
                assert int(viewer.sh(NEWEST)) >= max(written, default=5)
            with never_again("wrong bytes"):
                assert sums(viewer, "/dev/vda", "/dev/vdb", skip=1) == before
    assert stored(pair.target, "golden") < 8 * MIB
    assert stored(pair.target, "scratch") < 20 * MIB


@pytest.mark.timeout(300)
def test_image_by_tag_is_copied_completely(moving: Callable[..., Pair]) -> None:
    def another_image(pod: Launcher, is_source: bool) -> None:
        image = pod.images / "root/disk/disk.img"
        image.parent.mkdir(parents=True)
        image.write_bytes((b"source-of-it" if is_source else b"another-one.") * (4 * MIB // 12))
        os.truncate(image, 8 * MIB)
        subprocess.run(["chmod", "-R", "a+rX", pod.images], check=True)

    pair = moving(machine_with({"name": "root", "type": "Image", "source": {"reference": "registry.example/root:1"}}), another_image)
    fill(pair.viewer, "/dev/vda", 1, seek=2)
    before = sums(pair.viewer, "/dev/vda")
    with relay.connected(pair.source, pair.target):
        pair.at_source.ask(messages.Migrate("m1", relays_disks=True))
        status = pair.at_source.until(ended("m1"), 90)
        assert figures(status).state == "succeeded", figures(status).message
        with pair.target.console() as viewer:
            pair.at_target.ask(messages.ReleaseMigration("m1"))
            with never_again("wrong bytes"):
                assert viewer.sh("head -c 12 /dev/vda") == "source-of-it"
                assert sums(viewer, "/dev/vda") == before


def when_disks_are_copied(pair: Pair, uid: str) -> None:
    pair.at_source.until(lambda status: figures(status, uid).data_processed_bytes > MIB, 60)


def when_memory_moves(pair: Pair, uid: str) -> None:
    pair.at_source.until(lambda status: figures(status, uid).memory_processed_bytes > 0, 90)


def when_it_begins(_pair: Pair, _uid: str) -> None:
    return


CUTS: list[tuple[str, Callable[[Pair, str], None], tuple[int, ...]]] = [
    ("the way of the disks is not there", when_it_begins, (2,)),
    ("the way of the disks breaks while they are copied", when_disks_are_copied, (2,)),
    ("every way breaks while disks are copied", when_disks_are_copied, (0, 1, 2)),
    ("the way of the disks breaks while memory moves", when_memory_moves, (2,)),
    ("every way breaks while memory moves", when_memory_moves, (0, 1, 2)),
]


@pytest.mark.timeout(600)
def test_broken_disk_copy_keeps_the_guest_on_its_own_disk(moving: Callable[..., Pair], start: Callable[[], Launcher]) -> None:
    machine = machine_with(SCRATCH)
    pair = moving(machine)
    fill(pair.viewer, "/dev/vda", 12, seek=1)
    before = sums(pair.viewer, "/dev/vda", skip=1)
    pair.viewer.type(WRITER)
    for number, (what, moment, which) in enumerate(CUTS):
        uid = f"m{number + 2}"
        target = start()
        with target.client() as at_target:
            at_target.ask(messages.PrepareMigrationTarget(uid, machine, relays_disks=True))
            with relay.connected(pair.source, target, SLOW) as relays, observing(pair.source, target):
                if moment is when_it_begins:
                    relays[2].cut()
                pair.at_source.ask(messages.Migrate(uid, relays_disks=True))
                moment(pair, uid)
                for each in which:
                    relays[each].cut()
                assert figures(pair.at_source.until(ended(uid), 60), uid).state == "failed", what
            target.process.send_signal(signal.SIGTERM)
            assert target.wait() == 0, what
        pair.at_source.until(lambda status: status.domain is not None and status.domain.state == "running")
        pair.viewer.seen = b""
        pair.viewer.expect("wrote-")
        pair.viewer.expect("wrote-")
    pair.viewer.type("kill $!\n")
    with never_again("wrong bytes"):
        assert sums(pair.viewer, "/dev/vda", skip=1) == before
    fill(pair.viewer, "/dev/vda", 4, seek=20)
    after = sums(pair.viewer, "/dev/vda")
    with relay.connected(pair.source, pair.target):
        pair.at_source.ask(messages.Migrate("m1", relays_disks=True))
        assert figures(pair.at_source.until(ended("m1"), 90)).state == "succeeded"
        with pair.target.console() as viewer:
            pair.at_target.ask(messages.ReleaseMigration("m1"))
            with never_again("wrong bytes"):
                assert sums(viewer, "/dev/vda") == after


@pytest.mark.timeout(300)
@pytest.mark.parametrize("side", ["source", "target"])
def test_libvirtd_death_during_a_disk_copy_keeps_the_source(moving: Callable[..., Pair], side: str) -> None:
    pair = moving(machine_with(SCRATCH))
    fill(pair.viewer, "/dev/vda", 24)
    before = sums(pair.viewer, "/dev/vda")
    with relay.connected(pair.source, pair.target, SLOW), observing(pair.source, pair.target):
        pair.at_source.ask(messages.Migrate("m1", relays_disks=True))
        when_disks_are_copied(pair, "m1")
        os.kill((pair.source if side == "source" else pair.target).libvirtd(), signal.SIGKILL)
        assert figures(pair.at_source.until(ended("m1"), 90)).state == "failed"
        pair.at_source.until(lambda status: status.domain is not None and status.domain.state == "running")
    with never_again("wrong bytes"):
        assert sums(pair.viewer, "/dev/vda") == before


@pytest.mark.timeout(300)
def test_abort_during_a_disk_copy_keeps_guest_and_disk(moving: Callable[..., Pair]) -> None:
    pair = moving(machine_with(SCRATCH))
    fill(pair.viewer, "/dev/vda", 24)
    before = sums(pair.viewer, "/dev/vda")
    with relay.connected(pair.source, pair.target, SLOW):
        began = time.monotonic()
        pair.at_source.ask(messages.Migrate("m1", 2 * MIB, relays_disks=True))
        copied = figures(pair.at_source.until(lambda status: figures(status).data_processed_bytes > 4 * MIB, 60))
        assert copied.data_processed_bytes < (time.monotonic() - began + 2) * 4 * MIB
        pair.at_source.ask(messages.AbortMigration("m1"))
        assert figures(pair.at_source.until(ended("m1"), 60)).state == "cancelled"
    with never_again("wrong bytes"):
        assert sums(pair.viewer, "/dev/vda") == before
    fill(pair.viewer, "/dev/vda", 1)


def test_handler_without_disk_relays_is_refused(start: Callable[[], Launcher]) -> None:
    machine = machine_with(SCRATCH)
    pod = start()
    with pod.client() as client:
        answer = client.call(messages.PrepareMigrationTarget("m1", machine))
        assert isinstance(answer, messages.Refusal)
        assert answer.reason == "Invalid"
        assert "virt-handler of this node is of a version that does not copy disks" in answer.message
        client.ask(messages.Sync(machine, paused=True))
        answer = client.call(messages.Migrate("m2"))
        assert isinstance(answer, messages.Refusal)
        assert "'scratch'" in answer.message
    assert Path(pod.overlays, "scratch.qcow2").exists()
