from __future__ import annotations

import contextlib
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from apiserver.apis.virt.places import layout
from handler.streams.usbredir import Breach, Packets, Type
from launcher.protocol import messages
from tests.damage import never_again
from tests.host.launcher import guest, relay, sandbox
from tests.host.launcher.sandbox import NO_GRAPHICS, Launcher, Viewer, a_machine, wait_for
from tests.unit.handler.streams import test_usbredir as packets
from tests.usb_peer import VENDOR_SPECIFIC, Peer

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]
Start = Callable[[], Launcher]

VENDOR: Final = 0x1209
"""From https://pid.codes, which gives numbers to small projects; these products are for tests."""
STORAGE: Final = 0x08
INPUTS: Final = {f"480 0627:0001 QEMU USB {each}" for each in ("Keyboard", "Mouse", "Tablet")}
"""High-speed devices, so none is behind a hub."""
STICK: Final = "5000 46f4:0001 QEMU USB HARDDRIVE"


@pytest.fixture
def start(program: Path, tmp_path: Path) -> Iterator[Start]:
    launchers: list[Launcher] = []
    with_usb = guest.build(guest.FULL_KERNEL, guest.USB_MODULES)

    def make() -> Launcher:
        launchers.append(Launcher(program, tmp_path / f"pod{len(launchers)}", with_usb))
        return launchers[-1]

    with sandbox.killed_afterwards(launchers):
        yield make


def devices(viewer: Viewer) -> set[str]:
    each = "echo $(cat $d/speed) $(cat $d/idVendor):$(cat $d/idProduct) $(cat $d/product)"
    told = viewer.sh(f"for d in /sys/bus/usb/devices/[0-9]*-*[0-9]; do [ -e $d/idVendor ] && {each}; done")
    return set(told.splitlines())


def until_seen(viewer: Viewer, wanted: str) -> None:
    wait_for(lambda: wanted in devices(viewer), 60, wanted)


def a_machine_with(**redirected: Any) -> messages.Machine:
    keyboards = [{"type": "keyboard"}, {"type": "mouse"}, {"type": "tablet"}]
    stick = {"name": "stick", "type": "EmptyDisk", "source": {"size": "3Mi"}, "target": {"bus": "usb"}}
    return a_machine(devices={**NO_GRAPHICS, "inputs": keyboards, "redirectedDevices": redirected, "disks": [stick]})


def test_the_guest_sees_the_devices_that_clients_connect(start: Start) -> None:
    pod = start()
    rules = [{"vendor": f"{VENDOR:#06x}", "product": "0x0003", "allow": False}, {"class": "0xff", "vendor": f"{VENDOR:#06x}"}]

    def connected(slot: int, product: int, vendor: int = VENDOR, kind: int = VENDOR_SPECIFIC) -> Peer:
        return Peer(pod.socket(layout.redirection_socket(slot)), vendor=vendor, product=product, text=f"thing {product}", kind=kind)

    with pod.client() as client, pod.console() as viewer:
        client.ask(messages.Sync(a_machine_with(slots=2, filter=rules)))
        viewer.expect("GUEST-READY", seconds=200)
        for each in INPUTS | {STICK}:
            until_seen(viewer, each)
        wait_for(lambda: viewer.sh("cat /sys/block/sda/size") == str(3 << 11), 60, "the disk")
        with never_again("a lost write"):
            assert viewer.sh("echo written | dd of=/dev/sda conv=fsync 2>/dev/null; head -c 7 /dev/sda") == "written"
        assert devices(viewer) == INPUTS | {STICK}

        with connected(0, 1) as one, connected(1, 2):
            until_seen(viewer, "12 1209:0001 thing 1")
            until_seen(viewer, "12 1209:0002 thing 2")
            assert not one.ended.is_set()
        wait_for(lambda: devices(viewer) == INPUTS | {STICK}, 60, "both devices to be pulled out")
        judge = Packets()
        assert judge.from_guest(one.heard) + judge.from_client(one.sent) == one.sent

        with connected(0, 3) as refused, connected(1, 4, vendor=0x046D) as stranger:
            assert refused.rejected.wait(30)
            assert stranger.rejected.wait(30)
            assert devices(viewer) == INPUTS | {STICK}
        with connected(0, 4, kind=STORAGE) as storage:
            assert storage.rejected.wait(30)
        with connected(0, 4):
            until_seen(viewer, "12 1209:0004 thing 4")
        assert not (pod.run_directory / layout.redirection_socket(2)).exists()


def test_machine_moves_without_redirected_devices(start: Start) -> None:
    source, target = start(), start()
    machine = a_machine(devices={**NO_GRAPHICS, "redirectedDevices": {"slots": 1}})

    def connected(pod: Launcher) -> Peer:
        return Peer(pod.socket(layout.redirection_socket(0)), vendor=VENDOR, product=1, text="thing")

    with source.client() as at_source, target.client() as at_target, source.console() as viewer:
        at_source.ask(messages.Sync(machine))
        prepared = at_target.ask(messages.PrepareMigrationTarget("m1", machine)).migration_of("m1")
        assert prepared is not None
        assert prepared.state == "prepared"
        viewer.expect("GUEST-READY", seconds=200)
        with connected(source) as peer, relay.connected(source, target), target.console() as other:
            until_seen(viewer, "12 1209:0001 thing")
            at_source.ask(messages.Migrate("m1"))
            at_source.until(lambda status: status.ending, seconds=120)
            at_target.ask(messages.ReleaseMigration("m1"))
            assert peer.ended.wait(30)
            wait_for(lambda: devices(other) == set(), 60, "the device to be pulled out")
            with connected(target):
                until_seen(other, "12 1209:0001 thing")


def outlived(directory: Path, sent: bytes) -> bool:
    path = directory / "slot"
    chardev = f"socket,id=slot,path={path},server=on,wait=off"
    said = b""
    command = ["qemu-system-x86_64", "-nodefaults", "-display", "none", "-m", "64", "-device", "qemu-xhci", "-chardev", chardev]
    with subprocess.Popen([*command, "-device", "usb-redir,chardev=slot"], cwd="/", stderr=subprocess.DEVNULL) as qemu:
        try:
            wait_for(path.exists, 60, "the socket")
            for what in (packets.hello() + sent, b""):
                said = b""
                with socket.socket(socket.AF_UNIX) as client, contextlib.suppress(OSError):
                    client.settimeout(60)
                    client.connect(str(path))
                    said = client.recv(4096)
                    client.sendall(what)
                    client.shutdown(socket.SHUT_WR)
                    while client.recv(4096):  # otherwise data that QEMU has not read is lost
                        pass
            return bool(said)
        finally:
            qemu.kill()


def test_qemu_outlives_what_is_passed_to_it_and_not_what_is_not(tmp_path: Path) -> None:
    more = packets.packet(Type.DEVICE_DISCONNECT) * 1024  # QEMU reads 4 KiB at a time, and crashes on the next read
    wrong = packets.packet(Type.BULK, length=129 << 20)
    for sent, outlives in ((packets.SAID + more, True), (wrong + more, False), (packets.FILTER + more, False)):
        judge = packets.greeted()
        with contextlib.nullcontext() if outlives else pytest.raises(Breach):
            assert judge.from_client(sent) == sent
        assert outlived(tmp_path, sent) is outlives
        (tmp_path / "slot").unlink(missing_ok=True)
