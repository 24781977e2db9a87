from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from launcher.protocol import messages
from tests.host.launcher import guest, sandbox
from tests.host.launcher.sandbox import DEBIAN_KERNEL_BOOT, Launcher, a_machine

pytestmark = [pytest.mark.host, pytest.mark.timeout(200)]
MIB = 1 << 20


@pytest.fixture
def start_on(program: Path, test_guest: guest.Guest, tmp_path: Path) -> Iterator[Callable[[str], Launcher]]:
    launchers: list[Launcher] = []

    def make(size: str) -> Launcher:
        launchers.append(Launcher(program, tmp_path / f"pod{len(launchers)}", test_guest, disks=size))
        return launchers[-1]

    with sandbox.killed_afterwards(launchers):
        yield make


def grow(pod: Launcher, size: str) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", pod.disks], check=True)


def paused_by_a_fault(status: messages.Status) -> bool:
    return status.domain is not None and (status.domain.state, status.domain.reason) == ("paused", "I/O error")


@pytest.mark.sample(2, "drivers of a full disk")
@pytest.mark.parametrize("driver", [{}, {"driver": {"errorPolicy": "enospace"}}], ids=["default", "enospace"])
def test_guest_with_a_full_disk_pauses_and_resumes_with_room(start_on: Callable[[str], Launcher], driver: dict[str, Any]) -> None:
    pod = start_on("8m")
    claim = pod.disks / "data"
    claim.mkdir()
    subprocess.run(["chown", "-R", "107:107", claim], check=True)
    disk = {"name": "data", "type": "PersistentVolumeClaim", "source": {"name": "c", "create": {"size": "64Mi"}}}
    disks = [{**disk, **driver}]
    machine = a_machine(devices={"disks": disks, "graphics": [], "interfaces": []})
    with pod.client() as client, pod.console() as viewer:
        small = client.call(messages.Sync(machine))
        assert isinstance(small, messages.Refusal)
        assert (small.reason, small.disks, small.full, small.status.ending) == ("NotReady", ("data",), True, None)
        assert "is 64Mi, and the storage of its claim has free space for 8Mi" in small.message
        with (claim / "disk.img").open("wb") as image:
            image.truncate(64 * MIB)
        subprocess.run(["chown", "-R", "107:107", claim], check=True)
        client.ask(messages.Sync(machine))
        viewer.expect("GUEST-READY")
        viewer.expect("# ")
        viewer.type("dd if=/dev/zero of=/dev/vda bs=1M count=32 conv=fsync; echo CO''PIED $?\n")
        domain = client.until(paused_by_a_fault).domain
        assert domain is not None
        assert (domain.detail, domain.full) == ("disk 'data': no space left", True)

        refusal = client.call(messages.Resume())
        assert isinstance(refusal, messages.Refusal)
        assert (refusal.reason, str(refusal.message)) == ("Failed", "the guest stopped again immediately: disk 'data': no space left")

        assert client.status.has_room is False
        grow(pod, "128m")
        client.until(lambda status: status.has_room)
        client.ask(messages.Resume())
        assert viewer.expect("COPIED 0")
        assert client.status.domain is not None
        assert (client.status.domain.state, client.status.domain.detail, client.status.domain.full) == ("running", "", False)
    assert (claim / "disk.img").stat().st_blocks * 512 >= 32 * MIB


def test_a_guest_that_went_to_sleep_is_woken(start_on: Callable[[str], Launcher]) -> None:
    """At a wake-up, QEMU would load a kernel that started by PVH again, over the sleeping one."""
    pod = start_on("")
    with pod.client() as client, pod.console() as viewer:
        client.ask(messages.Sync(a_machine(firmware={"kernelBoot": DEBIAN_KERNEL_BOOT})))
        viewer.expect("GUEST-READY")
        viewer.expect("# ")
        viewer.type("echo mem > /sys/power/state; echo AWA''KE\n")
        client.until(lambda status: status.domain is not None and status.domain.state == "pmsuspended")
        client.ask(messages.Resume())
        viewer.expect("AWAKE")
        client.until(lambda status: status.domain is not None and status.domain.state == "running")
