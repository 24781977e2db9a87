from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, get_args

import pytest

from apiserver.apis.virt.places import layout
from apiserver.apis.virt.v1alpha1.domain.inputs import Input
from apiserver.apis.virt.v1alpha1.domain.sound import Sound
from apiserver.apis.virt.v1alpha1.domain.video import Video
from apiserver.apis.virt.v1alpha1.domain.watchdog import Watchdog
from launcher.protocol import messages
from tests.host.launcher import guest, sandbox
from tests.host.launcher.sandbox import NO_GRAPHICS, Launcher, Viewer, a_machine, a_tiny_machine

pytestmark = [pytest.mark.host, pytest.mark.timeout(240)]
Start = Callable[[], Launcher]

WATCHDOG: Final = "8086:25ab"
AC97: Final = "8086:2415"
BOCHS: Final = "1234:1111"
XHCI: Final = "1b36:000d"
VIRTIO_INPUT: Final = "1af4:1052"
"""PCI vendor and device (docs/specs/pci-ids.rst of QEMU; Intel's data sheets)."""
MIB: Final = 1 << 20


def cards(viewer: Viewer) -> dict[str, str]:
    told = viewer.sh("for d in /sys/bus/pci/devices/*; do echo $(cat $d/vendor) $(cat $d/device) $d; done")
    return {f"{vendor[2:]}:{device[2:]}": path for vendor, device, path in (line.split() for line in told.splitlines())}


def first_region(viewer: Viewer, card: str) -> int:
    """Return the size in bytes of a PCI card's first region: a video card's memory."""
    start, end, _ = viewer.sh(f"head -n 1 {card}/resource").split()
    return int(end, 16) - int(start, 16) + 1


def let_it_run_out(viewer: Viewer) -> None:
    """Start the watchdog's timer without a driver to reset it.

    Intel 6300ESB, 16.4: bit 2 of configuration register 60h makes the timer count microseconds: each of its two stages lasts a second. Bit
    1 of register 68h starts it.
    """
    card = cards(viewer)[WATCHDOG]
    viewer.type(f"printf '\\004\\000' | dd of={card}/config bs=2 seek=48 conv=notrunc 2>/dev/null\n")
    viewer.type(f"printf '\\002' | dd of={card}/config bs=1 seek=104 conv=notrunc 2>/dev/null\n")


def test_every_further_device_is_seen_by_the_guest(start: Start) -> None:
    pod = start()
    devices = {
        **NO_GRAPHICS,
        "video": {"type": "bochs", "vram": "32Mi"},
        "inputs": [{"type": "keyboard"}, {"type": "tablet", "bus": "virtio"}, {"type": "mouse", "bus": "virtio"}],
        "sound": {"model": "ac97"},
        "watchdog": {"action": "pause"},
        "rng": {"rate": {"bytes": MIB}},
        "panic": {"model": "none"},
        "consoles": [{"type": "pty"}, {"type": "pty"}],
    }
    with pod.client() as client, pod.console() as viewer, pod.console(1) as other:
        client.ask(messages.Sync(a_machine(devices=devices)))
        viewer.expect("GUEST-READY", seconds=120)
        found = cards(viewer)
        assert {WATCHDOG, AC97, BOCHS, XHCI, VIRTIO_INPUT} <= found.keys()
        assert first_region(viewer, found[BOCHS]) == 32 * MIB
        names = viewer.sh("cat /sys/class/input/input*/name").splitlines()
        assert {"QEMU Virtio Tablet", "QEMU Virtio Mouse"} <= set(names)
        assert viewer.sh("head -c 64 /dev/hwrng | wc -c") == "64"
        assert "virtio" in viewer.sh("cat /sys/class/misc/hw_random/rng_current")
        assert viewer.sh("ls -d /sys/bus/acpi/devices/QEMU0001*") == "ls: /sys/bus/acpi/devices/QEMU0001*: No such file or directory"

        viewer.type("exec 5<>/dev/ttyS1; echo from-the-second-port >&5; read said <&5; echo heard $said\n")
        other.expect("from-the-second-port")
        other.type("an-answer\n")
        viewer.expect("heard an-answer")
        assert client.until(lambda status: status.consoles == 2).ending is None

        let_it_run_out(viewer)
        client.until(lambda status: status.domain is not None and status.domain.state == "paused", seconds=60)
        assert client.status.domain is not None
        assert client.status.domain.reason == "watchdog"
        client.ask(messages.Resume())
        assert viewer.sh("echo it goes on") == "it goes on"
        assert client.status.watchdogs == 1


def test_a_watchdog_that_fires_does_what_was_asked(start: Start) -> None:
    pod = start()
    machine = a_machine(machine={"type": "pc"}, devices={**NO_GRAPHICS, "watchdog": {"action": "poweroff"}})
    with pod.client() as client, pod.console() as viewer:
        client.ask(messages.Sync(machine))
        viewer.expect("GUEST-READY", seconds=120)
        let_it_run_out(viewer)
        ending = client.until(lambda status: status.ending, seconds=60).ending
        assert ending is not None
        assert (ending.kind, ending.watchdog, ending.message) == ("crashed", True, "the guest's watchdog fired and powered it off")
    assert pod.wait() == 1


def words(model: Any, field: str) -> tuple[str, ...]:
    annotation = model.model_fields[field].annotation
    return next((get_args(each) for each in get_args(annotation) if get_args(each)), get_args(annotation))


EVERY: Final[dict[str, list[Any]]] = {
    "video": [{"type": each} for each in words(Video, "type") if each != "none"]
    + [{"vram": "4Mi"}, {"vram": "256Mi"}, {"type": "bochs", "vram": "4Mi"}, {"type": "bochs", "vram": "256Mi"}]
    + [{"type": "virtio", "heads": 4}],
    "inputs": [[{"type": kind, "bus": bus}] * 8 for kind in words(Input, "type") for bus in words(Input, "bus")],
    "sound": [{"model": each} for each in words(Sound, "model")],
    "watchdog": [{"action": each} for each in words(Watchdog, "action")],
    "rng": [{"model": "none"}, {"rate": {"bytes": 1, "period": 1}}, {"rate": {"bytes": 1 << 30, "period": 86_400_000}}],
    "panic": [{"model": "none"}],
    "consoles": [[], [{"type": "pty"}] * layout.SERIAL_PORTS],
}
TOGETHER: Final = [dict(zip(EVERY, row, strict=True)) for row in itertools.zip_longest(*EVERY.values())]
"""Every device at least once, with few guests."""


@pytest.mark.parametrize(("machine", "graphics"), [("q35", ["vnc", "spice"]), ("pc", [])])
@pytest.mark.parametrize("devices", TOGETHER, ids=lambda devices: " ".join(f"{each}" for each in devices.values() if each))
def test_libvirt_takes_every_device_that_virt_api_does(start: Start, devices: dict[str, Any], machine: str, graphics: list[str]) -> None:
    given = {name: each for name, each in devices.items() if each is not None}
    displays = {"interfaces": [], "graphics": [{"type": each} for each in graphics]}
    with start().client() as client:
        client.ask(messages.Sync(a_tiny_machine(machine={"type": machine}, devices={**given, **displays})))


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        (
            {},
            (
                "devices.hostDevices[0].deviceName: the pod's environment variable PCI_RESOURCE_VENDOR_EXAMPLE_CARD "
                "names no device of vendor.example/card"
            ),
        ),
        ({"PCI_RESOURCE_VENDOR_EXAMPLE_CARD": "0000:ff:1f.7"}, "pci"),
    ],
)
def test_a_device_that_the_node_has_not_is_told(
    program: Path, test_guest: guest.Guest, tmp_path: Path, environment: dict[str, str], told: str
) -> None:
    pods = [Launcher(program, tmp_path / "pod", test_guest, environment=environment)]
    devices = {**NO_GRAPHICS, "hostDevices": [{"name": "card", "deviceName": "vendor.example/card"}]}
    with sandbox.killed_afterwards(pods), pods[0].client() as client:
        refused = client.call(messages.Sync(a_machine(devices=devices)))
        assert isinstance(refused, messages.Refusal)
        assert told.lower() in refused.message.lower()
