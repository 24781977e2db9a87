"""A running Linux takes processors, memory and limits of its disk, once, and keeps them over a reset and a migration."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from launcher.protocol import messages
from tests.guest_kernel import KERNEL_ARGS
from tests.host.launcher import relay
from tests.host.launcher.sandbox import KERNEL_BOOT, NO_GRAPHICS, Client, Launcher, Viewer, a_machine
from tests.host.launcher.test_migration import ended, state_of

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]

CPU = {"sockets": 1, "maxSockets": 3}
DISK = {"name": "data", "type": "EmptyDisk", "source": {"size": "8Mi"}}
READ = "dd if=/dev/vda of=/dev/null bs=4k count=30 iflag=direct 2>/dev/null"


MEMORY = {"guest": "256Mi", "maxGuest": "768Mi"}
WRITING = "(while :; do dd if=/dev/zero of=/written bs=1M count=150; done) >/dev/null 2>&1 & writer=$!"
"""Also into added memory, whose writes QEMU's emulator does not record."""
LARGE, SMALL = str(384 << 20), str(256 << 20)
RELEASES_MEMORY = {"kernelBoot": {**KERNEL_BOOT, "kernelArgs": f"{KERNEL_ARGS} memhp_default_state=online_movable"}}


def settings(status: messages.Status) -> dict[str, str]:
    assert status.domain is not None
    return {each.what: each.value for each in status.domain.settings}


def processors(viewer: Viewer) -> str:
    return viewer.sh("for c in /sys/devices/system/cpu/cpu[1-9]*/online; do echo 1 > $c; done; grep -c ^processor /proc/cpuinfo")


def seconds(viewer: Viewer) -> float:
    told = viewer.sh(f"cut -d' ' -f1 /proc/uptime; {READ}; cut -d' ' -f1 /proc/uptime")
    before, after = map(float, re.findall(r"\d+\.\d\d", told))
    return after - before


def test_linux_gets_processors_and_limits_and_keeps_them(start: Callable[[], Launcher]) -> None:
    pod = start()
    with pod.client() as client, pod.console() as viewer:
        client.ask(messages.Sync(a_machine(cpu=CPU, devices={**NO_GRAPHICS, "disks": [DISK]})))
        viewer.expect("GUEST-READY")
        assert seconds(viewer) < 2
        for _ in range(2):
            client.ask(messages.Change("cpu.sockets", "", {**CPU, "sockets": 2}))
            status = client.ask(messages.Change("disk.ioTune", "data", {**DISK, "ioTune": {"totalIopsSec": 10}}))
            assert settings(status) == {"cpu.sockets": "2", "disk.ioTune": "totalIopsSec=10"}
        assert processors(viewer) == "2"
        assert seconds(viewer) > 2
        client.ask(messages.Operate("a", 1, "Reset"))
        viewer.expect("GUEST-READY")
        assert processors(viewer) == "2"
        assert len(pod.qemu()) == 1
        status = client.ask(messages.Change("disk.ioTune", "data", DISK))
        assert settings(status)["disk.ioTune"] == ""
        assert seconds(viewer) < 2


def test_processors_added_just_before_a_migration_arrive(start: Callable[[], Launcher]) -> None:
    source, target = start(), start()
    wanted = {**CPU, "sockets": 2}
    with source.client() as at_source, target.client() as at_target, source.console() as viewer:
        at_source.ask(messages.Sync(a_machine(cpu=CPU, devices=NO_GRAPHICS)))
        viewer.expect("GUEST-READY")
        at_target.ask(messages.PrepareMigrationTarget("m1", a_machine(cpu=wanted, devices=NO_GRAPHICS)))
        with relay.connected(source, target), target.console() as there:
            at_source.ask(messages.Change("cpu.sockets", "", wanted))
            at_source.ask(messages.Migrate("m1"))
            assert state_of(at_source.until(ended("m1"))) == "succeeded"
            at_target.until(lambda status: state_of(status) == "arrived")
            assert settings(at_target.ask(messages.ReleaseMigration("m1"))) == {"cpu.sockets": "2"}
            there.type("\n")
            assert processors(there) == "2"


def mebibytes(viewer: Viewer, wanted: int = 0) -> int:
    read = "m=$(($(grep MemTotal /proc/meminfo | tr -cd 0-9) / 1024))"
    return int(viewer.sh(f"for i in $(seq 100); do {read}; [ $m = {wanted or '$m'} ] && break; usleep 100000; done; echo $m"))


def resized(client: Client, guest: str) -> messages.Status:
    client.ask(messages.Change("memory.guest", "", {**MEMORY, "guest": guest}))
    return client.until(lambda status: status.domain is not None and not any(each.requested for each in status.domain.settings))


def test_linux_gets_memory_and_keeps_it_over_a_migration(start: Callable[[], Launcher]) -> None:
    source, target = start(), start()
    with source.client() as at_source, target.client() as at_target, source.console() as viewer:
        at_source.ask(messages.Sync(a_machine(cpu=CPU, memory=MEMORY, firmware=RELEASES_MEMORY)))
        viewer.expect("GUEST-READY")
        before = mebibytes(viewer)
        for _ in range(2):
            assert settings(resized(at_source, "384Mi"))["memory.guest"] == LARGE
        assert mebibytes(viewer, before + 128) == before + 128
        assert '<current unit="KiB">131072<' in at_source.read("domainxml")
        assert settings(resized(at_source, "256Mi"))["memory.guest"] == SMALL
        assert mebibytes(viewer, before) == before
        assert settings(resized(at_source, "384Mi"))["memory.guest"] == LARGE
        grown = a_machine(cpu=CPU, memory={**MEMORY, "guest": "384Mi"}, firmware=RELEASES_MEMORY)
        at_target.ask(messages.PrepareMigrationTarget("m1", grown))
        viewer.sh(WRITING)
        with relay.connected(source, target), target.console() as there:
            at_source.ask(messages.Migrate("m1"))
            assert state_of(at_source.until(ended("m1"))) == "succeeded"
            at_target.until(lambda status: state_of(status) == "arrived")
            assert settings(at_target.ask(messages.ReleaseMigration("m1")))["memory.guest"] == LARGE
            there.type("\n")
            there.sh("kill $writer; wait $writer; rm /written")
            assert mebibytes(there, before + 128) == before + 128
            assert settings(resized(at_target, "256Mi"))["memory.guest"] == SMALL
            assert mebibytes(there, before) == before
            assert settings(resized(at_target, "512Mi"))["memory.guest"] == str(512 << 20)
            at_target.ask(messages.Operate("a", 1, "Reset"))
            there.expect("GUEST-READY")
            at_target.until(lambda status: settings(status)["memory.guest"] == str(512 << 20))
            refused = at_target.call(messages.Change("memory.guest", "", {**MEMORY, "guest": "128Mi"}))
            assert isinstance(refused, messages.Refusal)
            assert (refused.reason, refused.message) == ("Failed", "the guest started with 256 MiB of memory, and cannot have less")
