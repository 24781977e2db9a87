"""The kernel limits a hostile guest's writes, and the launcher survives."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from apiserver.apis.virt.places import layout
from controller.reconcilers.launcher_pods.disks import overlays_bytes
from launcher.main.programs import qemu_log
from launcher.protocol import messages
from tests.host.launcher.sandbox import READY, Launcher, a_machine, a_tiny_machine, wait_for

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]
Start = Callable[[], Launcher]
GRAPHICS = {"graphics": [{"type": "vnc"}, {"type": "spice"}], "interfaces": []}


def as_guest(pod: Launcher, command: str) -> subprocess.CompletedProcess[str]:
    arguments = ["nsenter", "--mount", f"--target={pod.qemu()[0]}", "setpriv", f"--reuid={layout.USER_ID}", f"--regid={layout.USER_ID}"]
    return subprocess.run(
        [*arguments, "--clear-groups", "--bounding-set=-all", "--inh-caps=-all", "sh", "-c", command],
        capture_output=True,
        text=True,
        check=False,
    )


def used(path: Path) -> int:
    seen = os.statvfs(path)
    return (seen.f_blocks - seen.f_bfree) * seen.f_frsize


def image_disk(pod: Launcher, size: int, limit: str) -> messages.Machine:
    path = pod.images / "root/disk/disk.img"
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.truncate(size)
    subprocess.run(["chmod", "-R", "a+rX", pod.images], check=True)
    disk = {"name": "root", "type": "Image", "source": {"reference": "x", "sizeLimit": limit}}
    return a_machine(devices={"disks": [disk], "graphics": [], "interfaces": []})


def volumes(pod: Launcher) -> dict[str, Path]:
    return {volume.name: pod.run_directory.parent / volume.name for volume in layout.IN_MEMORY}


def test_guest_runs_on_a_read_only_root_with_its_volumes(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    pod = start()
    with pod.client() as client, pod.console() as viewer:
        client.ask(messages.Sync(a_tiny_machine(devices=GRAPHICS)))
        viewer.expect(READY)
        taken = {name: used(path) for name, path in volumes(pod).items()}
        with capsys.disabled():
            print(f"\n[written with everything running: {taken}]")
        for volume in layout.IN_MEMORY:
            assert taken[volume.name] <= volume.size // 4, volume
        for path in ("/", "/etc", "/var/tmp", "/var/lib/kubevirt", "/run", "/home", layout.KERNEL_BOOT_DIRECTORY):
            done = as_guest(pod, f"touch {path}/x")
            assert done.returncode != 0, path
        limits = Path(f"/proc/{pod.qemu()[0]}/limits").read_text()
        core = next(line for line in limits.splitlines() if line.startswith("Max core file size")).split()
        assert core[4:6] == ["0", "0"]


def test_flood_of_qemu_log_is_bounded_and_its_end_reported(start: Start) -> None:
    pod = start()
    cache = volumes(pod)["cache"]
    log = cache / "libvirt/qemu/log/default_testvm.log"
    with pod.client() as client, pod.console() as viewer:
        client.ask(messages.Sync(a_tiny_machine()))
        viewer.expect(READY)
        qemu = pod.qemu()[0]
        stderr = Path(f"/proc/{qemu}/fd/2")
        assert stderr.resolve().name == log.name
        flood = as_guest(pod, f"cat /dev/zero >> {layout.CACHE_DIRECTORY}/libvirt/qemu/log/default_testvm.log")
        assert "No space left" in flood.stderr
        assert used(cache) <= next(volume.size for volume in layout.IN_MEMORY if volume.name == layout.CACHE_VOLUME)
        wait_for(lambda: log.stat().st_size <= qemu_log.MAX_BYTES, 30, "the log to be cut")
        assert int(Path(f"/proc/{qemu}/fdinfo/2").read_text().split("flags:")[1].split()[0], 8) & os.O_APPEND
        assert viewer.ask("echo still here") == "still here"
        with log.open("ab") as file:
            file.write(b"\nqemu: these are my last words\n")
        os.kill(qemu, 9)
        ending = client.until(lambda status: status.ending).ending
        assert ending is not None
        assert ending.kind == "crashed"
        assert "qemu: these are my last words" in ending.log
    assert pod.wait() == 1


def test_pod_with_full_volumes_still_powers_its_guest_off(start: Start) -> None:
    pod = start()
    with pod.client() as client, pod.console() as viewer:
        client.ask(messages.Sync(a_tiny_machine()))
        viewer.expect(READY)
        for volume in layout.IN_MEMORY:
            assert "No space left" in as_guest(pod, f"cat /dev/zero > {volume.directory}/filled").stderr
            assert used(volumes(pod)[volume.name]) <= volume.size
        assert viewer.ask("echo still here") == "still here"
        client.ask(messages.Shutdown(20.0))
        ending = client.until(lambda status: status.ending).ending
        assert ending is not None
        assert ending.kind == "shutdown-requested"
    assert pod.wait() == 0


def test_fully_written_disk_stays_within_the_overlay_volume(start: Start) -> None:
    pod = start()
    machine = image_disk(pod, 64 << 20, "64Mi")
    bound = overlays_bytes(machine.domain)
    with pod.client() as client, pod.console() as viewer:
        client.ask(messages.Sync(machine))
        viewer.expect("GUEST-READY")
        for _ in range(2):
            assert "No space left" in viewer.sh("tr '\\0' x </dev/zero | dd of=/dev/vda bs=1M; sync")
        overlay = pod.overlays / "root.qcow2"
        assert 64 << 20 < overlay.stat().st_blocks * 512 <= bound - (1 << 20)
        assert overlay.stat().st_size <= bound
        assert viewer.sh("echo still $((40 + 2))") == "still 42"


def test_disk_larger_than_its_volume_does_not_start(start: Start) -> None:
    pod = start()
    machine = image_disk(pod, (64 << 20) + 512, "64Mi")
    with pod.client() as client:
        refusal = client.call(messages.Sync(machine))
        assert isinstance(refusal, messages.Refusal)
        assert refusal.reason == "Failed"
        assert "Set sizeLimit to 65Mi or more" in refusal.message
        assert refusal.status.ending is not None
        assert (refusal.status.ending.kind, pod.qemu()) == ("start-failed", [])


@pytest.mark.parametrize("limit", ["1Mi", "4Gi", "100Gi", "16Ti"])
def test_qemu_itself_counts_no_more_for_an_overlay(limit: str) -> None:
    arguments = ["qemu-img", "measure", "--size", limit.removesuffix("i"), "-O", "qcow2", "--output", "json"]
    measured = json.loads(subprocess.run(arguments, capture_output=True, text=True, check=True).stdout)
    disk = {"type": "Image", "source": {"reference": "a", "sizeLimit": limit}}

    assert measured["fully-allocated"] + (1 << 20) <= overlays_bytes({"devices": {"disks": [disk]}})
