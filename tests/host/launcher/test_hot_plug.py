"""A running guest gets and grows disks and media from other pods' claims, and loses them."""

from __future__ import annotations

import dataclasses
import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.virt.hardware import disks
from apiserver.apis.virt.places import layout, saved_image
from apiserver.apis.virt.spec import hot_plug
from handler.devices import claims
from handler.pods.process import Launcher as Process
from launcher.protocol import messages
from tests.damage import never_again
from tests.host.launcher import guest
from tests.host.launcher.sandbox import NO_GRAPHICS, Client, Launcher, Viewer, a_machine, killed_afterwards

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]
MIB = 1 << 20
DRIVE: dict[str, Any] = {"name": "tray", "device": "cdrom", "readOnly": True, "target": {"bus": "scsi"}}
APPEARED = 'while test -z "$(ls /sys/block)"; do sleep 1; done'
SUSPENSION = "0b7c1a52-0000-4000-8000-000000000001"


@contextmanager
def an_attachment_pod(claim: Path) -> Iterator[Process]:
    top = Path(layout.ATTACHMENT_DIRECTORY)
    script = (
        f"mount --make-rprivate / && mount --bind {claim} /mnt && mount -t tmpfs none {top.parents[1]} && mkdir -p {top}"
        f" && mount --move /mnt {top} && echo ready && exec sleep 300"
    )
    with subprocess.Popen(["unshare", "--mount", "sh", "-c", script], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            with opened(process.pid) as found:
                yield found
        finally:
            process.kill()


@contextmanager
def opened(pid: int) -> Iterator[Process]:
    root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY)
    found = Process(pid, os.pidfd_open(pid), os.open(f"/proc/{pid}/ns/net", os.O_RDONLY), root)
    try:
        yield found
    finally:
        found.close()


@pytest.fixture
def claim(tmp_path: Path) -> Path:
    return a_claim(tmp_path, "claim")


def a_claim(parent: Path, name: str) -> Path:
    directory = parent / name
    directory.mkdir()
    os.chown(directory, layout.USER_ID, layout.USER_ID)
    image = directory / layout.DISK_IMAGE
    image.write_bytes(f"of-the-{name}".encode().ljust(MIB, b"\0"))
    os.chown(image, layout.USER_ID, layout.USER_ID)
    return directory


@dataclasses.dataclass(frozen=True)
class Running:
    pod: Launcher
    client: Client
    viewer: Viewer
    process: Process


@contextmanager
def booted(program: Path, test_guest: guest.Guest, directory: Path, *disks: dict[str, Any]) -> Iterator[Running]:
    launchers: list[Launcher] = []
    with killed_afterwards(launchers):
        pod = Launcher(program, directory / "pod", test_guest, disks="1M")
        launchers.append(pod)
        pod.socket(layout.LAUNCHER_SOCKET).close()
        with opened(pod.process.pid) as process, pod.client() as client, pod.console() as viewer:
            client.ask(messages.Sync(a_machine(devices={**NO_GRAPHICS, "disks": list(disks)})))
            viewer.expect("GUEST-READY", seconds=120)
            yield Running(pod, client, viewer, process)


@pytest.fixture(scope="module")
def running(program: Path, test_guest: guest.Guest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A guest without disks: each test takes back what it attaches."""
    with booted(program, test_guest, tmp_path_factory.mktemp("running")) as made:
        yield made


@pytest.fixture(scope="module")
def with_drive(program: Path, test_guest: guest.Guest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with booted(program, test_guest, tmp_path_factory.mktemp("with-drive"), DRIVE) as made:
        yield made


@pytest.mark.parametrize("bus", ["virtio", "scsi"])
def test_guest_gets_a_disk_writes_and_loses_it(running: Running, claim: Path, bus: str) -> None:
    disk: dict[str, Any] = {
        "name": "data",
        "type": "PersistentVolumeClaim",
        "source": {"name": "data"},
        "device": "disk",
        "readOnly": False,
        "target": {"bus": bus},
        "serial": "hotplugged",
    }
    client, viewer, target = running.client, running.viewer, running.process
    with an_attachment_pod(claim) as source:
        assert viewer.sh("ls /sys/block") == ""
        refused = client.call(messages.AttachDisk(disk))
        assert isinstance(refused, messages.Refusal)
        assert (refused.reason, "No such file or directory" in refused.message) == ("Failed", True)
        claims.put(source, target, "data", read_only=False)
        client.ask(messages.AttachDisk(disk))
        claims.put(source, target, "data", read_only=False)  # virt-handler has restarted
        status = client.ask(messages.AttachDisk(disk))
        assert status.domain is not None
        (told,) = status.domain.devices
        assert (told.kind, told.name) == ("disk", "data")
        viewer.sh(APPEARED)
        name = viewer.sh("ls /sys/block")
        assert name == {"virtio": "vda", "scsi": "sda"}[bus]
        with never_again("wrong bytes"):
            assert viewer.sh(f"head -c 12 /dev/{name}") == "of-the-claim"
        viewer.sh(f"echo of-the-guest | dd of=/dev/{name} conv=fsync")
        for _ in range(2):
            client.ask(messages.Change("disk.size", "data", {**disk, "source": {"name": "data", "create": {"size": "3Mi"}}}))
        viewer.sh(f"while test $(cat /sys/block/{name}/size) = {MIB // 512}; do sleep 1; done")
        assert viewer.sh(f"cat /sys/block/{name}/size") == str(3 * MIB // 512)
        assert (claim / layout.DISK_IMAGE).stat().st_size == 3 * MIB
        with pytest.raises(OSError, match="busy") as busy:
            claims.remove(target, "data")
        assert busy.value.errno == errno.EBUSY
        client.ask(messages.DetachDisk("data"))
        claims.remove(target, "data")
        status = client.ask(messages.DetachDisk("data"))
        claims.remove(target, "data")
        assert status.domain is not None
        assert status.domain.devices == ()
        assert viewer.sh("ls /sys/block") == ""
        assert list(running.pod.disks.iterdir()) == []
    with never_again("a lost write"):
        assert (claim / layout.DISK_IMAGE).read_bytes().startswith(b"of-the-guest")


BLANK = {"name": "data", "type": "EmptyDisk", "source": {"size": "1Mi"}}
COPY = {"name": "data", "type": "Image", "source": {"reference": "registry/tools", "path": layout.DISK_IMAGE}}
EPHEMERAL = {"name": "data", "type": "PersistentVolumeClaim", "source": {"name": "data", "ephemeral": True}}


@pytest.mark.parametrize(("disk", "content"), [(BLANK, ""), (COPY, "of-the-claim"), (EPHEMERAL, "of-the-claim")])
def test_released_overlay_loses_what_the_guest_wrote(
    running: Running, claim: Path, tmp_path: Path, disk: dict[str, Any], content: str
) -> None:
    client, viewer, target = running.client, running.viewer, running.process
    (full,) = disks.defaulted({"devices": {"disks": [{**disk, "serial": "hotplugged"}]}})
    space = a_claim(tmp_path, "space")
    (space / layout.DISK_IMAGE).unlink()
    with an_attachment_pod(claim) as source, an_attachment_pod(space) as spaces:
        for _ in range(2):
            for each in hot_plug.mounts_of(full):
                pods = spaces if each.source == layout.ATTACHMENT_OVERLAY_DIRECTORY else source
                claims.put(pods, target, each.name, read_only=each.read_only, parent=each.parent)
            for _ in range(2):
                client.ask(messages.AttachDisk(full))
            viewer.sh(APPEARED)
            with never_again("wrong bytes"):
                assert viewer.sh("head -c 12 /dev/vda | tr -d '\\0'") == content
            viewer.sh("echo of-the-guest | dd of=/dev/vda conv=fsync")
            with never_again("a lost write"):
                assert viewer.sh("head -c 12 /dev/vda") == "of-the-guest"
            assert [each.name for each in space.iterdir()] == [layout.OVERLAY]
            client.ask(messages.DetachDisk("data"))
            for each in hot_plug.mounts_of(full):
                claims.remove(target, each.name, each.parent)
            assert list(space.iterdir()) == []
            assert list(running.pod.disks.iterdir()) == []
            assert viewer.sh("ls /sys/block") == ""
    with never_again("wrong bytes"):
        assert (claim / layout.DISK_IMAGE).read_bytes().startswith(b"of-the-claim")


def a_disk(name: str) -> dict[str, Any]:
    source = {"type": "PersistentVolumeClaim", "source": {"name": name}}
    return {"name": name, **source, "device": "disk", "readOnly": False, "target": {"bus": "virtio"}, "serial": name}


def targets(status: messages.Status) -> dict[str, str]:
    return {each.name: each.target for each in status.domain.devices} if status.domain is not None else {}


def test_disk_behind_a_gap_keeps_its_name_after_a_resume(program: Path, test_guest: guest.Guest, tmp_path: Path) -> None:
    """A new count would give ``logs`` the name ``vda``, and the guest would then lose another disk."""
    names = ("data", "logs")
    given = {name: a_claim(tmp_path, name) for name in names}
    saves, launchers = a_claim(tmp_path, "saves"), list[Launcher]()

    def start() -> Launcher:
        launchers.append(Launcher(program, tmp_path / f"pod{len(launchers)}", test_guest, disks="1M", saves=saves))
        launchers[-1].socket(layout.LAUNCHER_SOCKET).close()
        return launchers[-1]

    with killed_afterwards(launchers), an_attachment_pod(given["data"]) as data, an_attachment_pod(given["logs"]) as logs:
        pod = start()
        with opened(pod.process.pid) as pods, pod.client() as client, pod.console() as viewer:
            client.ask(messages.Sync(a_machine(devices={**NO_GRAPHICS, "disks": []})))
            viewer.expect("GUEST-READY", seconds=120)
            for name, source in zip(names, (data, logs), strict=True):
                claims.put(source, pods, name, read_only=False)
                client.ask(messages.AttachDisk(a_disk(name)))
            assert targets(client.ask(messages.AttachDisk(a_disk("logs")))) == {"data": "vda", "logs": "vdb"}
            viewer.sh("until test -e /sys/block/vdb; do sleep 1; done")
            kept = targets(client.ask(messages.DetachDisk("data")))
            claims.remove(pods, "data")
            client.ask(messages.Operate(SUSPENSION, 1, "Suspend"))
            ending = client.until(lambda status: status.ending is not None).ending
        assert pod.wait() == 0
        image = saved_image.read(ending.message) if ending is not None else None
        assert image is not None

        pod = start()
        machine = dataclasses.replace(a_machine(devices={**NO_GRAPHICS, "disks": [a_disk("logs")]}), targets=kept)
        with opened(pod.process.pid) as pods, pod.client() as client, pod.console() as viewer:
            claims.put(logs, pods, "logs", read_only=False)
            status = client.ask(messages.Sync(machine, image=messages.Image(image.id, image.digest)))
            assert targets(status) == {"logs": "vdb"}
            claims.put(data, pods, "data", read_only=False)
            assert targets(client.ask(messages.AttachDisk(a_disk("data")))) == {"data": "vda", "logs": "vdb"}
            viewer.sh("until test -e /sys/block/vda; do sleep 1; done")
            with never_again("wrong bytes"):
                assert viewer.sh("head -c 11 /dev/vda /dev/vdb | grep of-the | tr '\\n' ' '") == "of-the-data of-the-logs"
            assert targets(client.ask(messages.DetachDisk("logs"))) == {"data": "vda"}
            assert viewer.sh("ls /sys/block") == "vda"
            assert viewer.sh("cat /sys/block/vda/serial") == "data"


OF_CLAIM = {"type": "PersistentVolumeClaim", "source": {"name": "data"}}
OF_IMAGE = {"type": "Image", "source": {"reference": "registry/tools", "path": layout.DISK_IMAGE}}


def told(status: messages.Status) -> list[tuple[str, bool]]:
    return [(each.name, each.empty) for each in status.domain.devices] if status.domain is not None else []


@pytest.mark.parametrize(("medium", "parent"), [(OF_CLAIM, layout.DISKS_DIRECTORY), (OF_IMAGE, layout.IMAGES_DIRECTORY)])
def test_drive_gets_a_medium_and_ejects_it_unless_it_is_locked(
    with_drive: Running, claim: Path, medium: dict[str, Any], parent: str
) -> None:
    client, viewer, target = with_drive.client, with_drive.viewer, with_drive.process
    with an_attachment_pod(claim) as source:
        for content in (b"of-the-claim", b"of-the-other"):
            (claim / layout.DISK_IMAGE).write_bytes(content.ljust(MIB, b"\0"))
            assert viewer.sh("head -c 12 /dev/sr0").endswith(": No medium found")
            claims.put(source, target, "tray", read_only=True, parent=parent)
            for _ in range(2):
                assert told(client.ask(messages.AttachDisk({**DRIVE, **medium}))) == [("tray", False)]
            assert viewer.sh("head -c 12 /dev/sr0") == content.decode()
            viewer.sh("exec 3</dev/sr0")
            refused = client.call(messages.DetachDisk("tray"))
            assert isinstance(refused, messages.Refusal)
            assert (refused.reason, refused.message) == (
                "NotReady",
                "the guest locks the tray of drive 'tray': unmount its medium in the guest",
            )
            with pytest.raises(OSError, match="busy"):
                claims.remove(target, "tray", parent)
            assert viewer.sh("head -c 12 /dev/sr0") == content.decode()
            viewer.sh("exec 3<&-")
            for _ in range(2):
                assert told(client.ask(messages.DetachDisk("tray"))) == [("tray", True)]
            claims.remove(target, "tray", parent)
