from __future__ import annotations

import dataclasses
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from apiserver.apis.virt.spec.described import domain_of
from launcher.protocol import messages
from tests.host.launcher import guest
from tests.host.launcher.sandbox import NO_GRAPHICS, Launcher, Viewer, a_machine, killed_afterwards

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]
Start = Callable[[], Launcher]

HUGEPAGES: Final = Path("/proc/sys/vm/nr_hugepages")
GUEST_PAGES: Final = 128
BALLOON: Final = "0x0005"
QEMUS_TABLE: Final = "WAET"
"""An ACPI table of QEMU, not of SeaBIOS."""
WITHOUT_BALLOON: Final = {**NO_GRAPHICS, "autoattachMemBalloon": False}
AHEAD_SECONDS: Final = 36_000
INDIA_SECONDS: Final = 19_800
"""Offset of Asia/Kolkata all year round."""
PAUSE_SECONDS: Final = 6
"""A clock that follows the node's time is as late after the pause as before."""
TOLERATED_SECONDS: Final = 1800
"""Between two clocks, one emulated on a loaded machine."""


@pytest.fixture
def start_with_hugepages(program: Path, test_guest: guest.Guest, tmp_path: Path) -> Iterator[Start]:
    before = HUGEPAGES.read_text()
    HUGEPAGES.write_text(str(int(before) + GUEST_PAGES))
    if int(HUGEPAGES.read_text()) < int(before) + GUEST_PAGES:
        HUGEPAGES.write_text(before)
        pytest.skip("the host's memory is in too many pieces for huge pages")
    pods: list[Launcher] = []

    def make() -> Launcher:
        pods.append(Launcher(program, tmp_path / f"pod{len(pods)}", test_guest, hugepages=True))
        return pods[-1]

    with killed_afterwards(pods):
        yield make
    HUGEPAGES.write_text(before)


@pytest.fixture
def two_processors() -> Iterator[list[int]]:
    before = os.sched_getaffinity(0)
    own = sorted(before)[:2]
    os.sched_setaffinity(0, own)
    yield own
    os.sched_setaffinity(0, before)


def pages_of(qemu: int, kibibytes: int) -> set[str]:
    found, size = set(), ""
    for line in Path(f"/proc/{qemu}/smaps").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "Size":
            size = value.split()[0]
        elif name == "KernelPageSize" and size == str(kibibytes):
            found.add(value.split()[0])
    return found


def is_ahead(viewer: Viewer, seconds: int) -> bool:
    return abs(int(viewer.sh("date +%s")) - time.time() - seconds) < TOLERATED_SECONDS


def real_time_clock(viewer: Viewer) -> int:
    return int(viewer.sh("cat /sys/class/rtc/rtc0/since_epoch"))


def threads(qemu: int) -> dict[str, str]:
    found = {}
    for task in Path(f"/proc/{qemu}/task").iterdir():
        try:
            status = dict(line.split(":", 1) for line in (task / "status").read_text().splitlines())
        except (FileNotFoundError, ProcessLookupError):
            continue
        found[status["Name"].strip()] = status["Cpus_allowed_list"].strip()
    return found


def test_processors_and_memory_are_as_they_were_asked_for(start_with_hugepages: Start) -> None:
    pod = start_with_hugepages()
    for name in ("busy", "calm"):
        (pod.disks / name).mkdir()
        (pod.disks / name / "disk.img").write_bytes(bytes(1 << 20))
    subprocess.run(["chown", "-R", "107:107", pod.disks], check=True)
    busy = {"name": "busy", "type": "PersistentVolumeClaim", "source": {"name": "c"}, "dedicatedIOThread": True}
    features = [{"name": "smap"}, {"name": "sse4.2", "policy": "disable"}, {"name": "popcnt", "policy": "forbid"}]
    machine = a_machine(
        cpu={"sockets": 1, "maxSockets": 3, "cores": 2, "model": "Nehalem", "features": features},
        memory={"guest": "256Mi", "maxGuest": "512Mi", "hugepages": {"pageSize": "2Mi"}},
        ioThreads={"count": 1},
        devices={**NO_GRAPHICS, "disks": [busy, {**busy, "name": "calm", "dedicatedIOThread": False}], "blockMultiQueue": True},
        clock={"utc": {"offsetSeconds": AHEAD_SECONDS}, "timer": {"hpet": {"present": True}, "kvm": {}}},
    )
    with pod.client() as client, pod.console() as viewer:
        client.ask(messages.Sync(machine))
        viewer.expect("GUEST-READY", seconds=240)
        assert viewer.sh("cat /sys/devices/system/cpu/possible /sys/devices/system/cpu/online") == "0-5\n0-1"
        flags = viewer.sh("grep -m 1 flags /proc/cpuinfo").split()
        assert {"smap", "sse4_1"} <= set(flags)
        assert not {"sse4_2", "popcnt"} & set(flags)
        assert "hpet" in viewer.sh("cat /sys/devices/system/clocksource/clocksource0/available_clocksource").split()
        assert QEMUS_TABLE in viewer.sh("ls /sys/firmware/acpi/tables").split()
        assert is_ahead(viewer, AHEAD_SECONDS)
        assert viewer.sh("dmesg | grep SRAT | grep -c hotplug") == "1"
        assert viewer.sh("ls -d /sys/block/vda/mq/* | wc -l") == "2"
        assert BALLOON in viewer.sh("cat /sys/bus/virtio/devices/*/device").split()
        (qemu,) = pod.qemu()
        assert {"IO iothread1", "IO iothread2"} <= set(threads(qemu))
        assert pages_of(qemu, 256 << 10) == {"2048"}
    assert "spec.domain.clock.timer.kvm" in pod.log.read_text()


def test_huge_pages_of_xml_are_those_of_the_pod(start_with_hugepages: Start) -> None:
    """QEMU has all pages before the guest's first instruction."""
    pod = start_with_hugepages()
    xml = (
        "<domain type='@type@'><name>@name@</name><memory unit='MiB'>256</memory>"
        "<memoryBacking><hugepages><page size='2048' unit='KiB'/></hugepages></memoryBacking><vcpu>1</vcpu>"
        "<os><type arch='x86_64' machine='q35'>hvm</type></os><devices><memballoon model='none'/></devices></domain>"
    )
    machine = dataclasses.replace(a_machine(), domain=dict(domain_of({"spec": {"domainXML": xml}})), domain_xml=xml)
    with pod.client() as client:
        client.ask(messages.Sync(machine, paused=True))
        (qemu,) = pod.qemu()
        assert pages_of(qemu, 256 << 10) == {"2048"}


def test_guest_without_acpi_has_its_zones_time_tracking_pauses(start: Start) -> None:
    pod = start()
    clock = {"timezone": "Asia/Kolkata", "timer": {"rtc": {"track": "guest"}}}
    with pod.client() as client, pod.console() as viewer:
        client.ask(messages.Sync(a_machine(features={"acpi": {"enabled": False}}, clock=clock, devices=WITHOUT_BALLOON)))
        viewer.expect("GUEST-READY", seconds=240)
        assert QEMUS_TABLE not in viewer.sh("ls /sys/firmware/acpi/tables").split()
        assert "hpet" not in viewer.sh("cat /sys/devices/system/clocksource/clocksource0/available_clocksource").split()
        assert is_ahead(viewer, INDIA_SECONDS)
        assert BALLOON not in viewer.sh("cat /sys/bus/virtio/devices/*/device").split()
        late = time.time() - real_time_clock(viewer)
        client.ask(messages.Suspend())
        time.sleep(PAUSE_SECONDS)
        client.ask(messages.Resume())
        assert time.time() - real_time_clock(viewer) - late > PAUSE_SECONDS / 2


def test_each_vcpu_and_the_emulator_have_own_processors(start: Start, two_processors: list[int]) -> None:
    pod, (first, second) = start(), two_processors
    with pod.client() as client:
        cpu = {"dedicatedCpuPlacement": True, "isolateEmulatorThread": True, "numa": {"guestMappingPassthrough": {}}}
        client.ask(messages.Sync(a_machine(cpu=cpu), paused=True))
        (qemu,) = pod.qemu()
        found = threads(qemu)
        assert found["CPU 0/TCG"] == str(first)
        assert found[Path(f"/proc/{qemu}/comm").read_text().strip()] == str(second)


def test_pod_without_dedicated_processors_says_what_is_missing(start: Start, two_processors: list[int]) -> None:
    pod = start()
    with pod.client() as client:
        answer = client.call(messages.Sync(a_machine(cpu={"cores": len(two_processors) + 1, "dedicatedCpuPlacement": True})))
        assert isinstance(answer, messages.Refusal)
        assert answer.message.startswith("cpu.dedicatedCpuPlacement: ")
        assert "cpuManagerPolicy" in answer.message
