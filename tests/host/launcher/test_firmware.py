from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from launcher.protocol import messages
from tests import tpm
from tests.damage import never_again
from tests.host.launcher import guest, relay, sandbox
from tests.host.launcher.sandbox import DEBIAN_KERNEL_BOOT, NO_GRAPHICS, Launcher, Viewer, a_machine

pytestmark = [pytest.mark.host, pytest.mark.timeout(900)]
Start = Callable[[Path], Launcher]

BOOT_SECONDS: Final = 300
VARIABLE: Final = "/sys/firmware/efi/efivars/Kept-5d307ca9-b3ef-428c-8861-06e72d69f223"


@pytest.fixture
def start(program: Path, test_guest: guest.Guest, tmp_path: Path) -> Iterator[Start]:
    launchers: list[Launcher] = []

    def make(state: Path) -> Launcher:
        launchers.append(Launcher(program, tmp_path / f"pod{len(launchers)}", test_guest, state=state))
        return launchers[-1]

    with sandbox.killed_afterwards(launchers):
        yield make


def dmi(viewer: Viewer, *names: str) -> list[str]:
    return viewer.sh("; ".join(f"cat /sys/class/dmi/id/{each}" for each in names)).split("\n")


def write_variable(viewer: Viewer) -> None:
    viewer.sh("mount -t efivarfs none /sys/firmware/efi/efivars")
    viewer.sh(f"printf '\\007\\000\\000\\000remember' >{VARIABLE}")


def power_off(pod: Launcher, client: sandbox.Client) -> None:
    client.ask(messages.Shutdown(60.0))
    assert pod.wait(120) == 0, pod.log.read_text()[-2000:]


def test_firmware_tpm_and_names_reach_the_guest_and_persist(start: Start, tmp_path: Path) -> None:
    system = {"manufacturer": "ACME, Inc.", "product": "Road Runner", "version": "v1", "sku": "sku-1", "family": "Birds"}
    chassis = {"manufacturer": "Cage, Ltd.", "version": "c2", "serial": "c-serial", "asset": "c-asset", "sku": "c-sku"}
    firmware: dict[str, Any] = {
        "serial": "serial-1",
        "system": system,
        "bootloader": {"efi": {"secureBoot": False, "persistent": True}},
        "persistentState": {"claimName": "c"},
        "kernelBoot": DEBIAN_KERNEL_BOOT,
    }
    memory = {"guest": "256Mi"}  # UEFI needs more than half of that
    machine = a_machine(memory=memory, firmware=firmware, chassis=chassis, devices={**NO_GRAPHICS, "tpm": {"persistent": True}})
    first = start(tmp_path / "claim")
    with first.client() as client, first.console() as viewer:
        status = client.ask(messages.Sync(machine))
        assert "persistent state of its UEFI and TPM" in status.not_migratable
        viewer.expect("GUEST-READY", seconds=BOOT_SECONDS)
        assert dmi(viewer, "sys_vendor", "product_name", "product_version", "product_sku", "product_family") == list(system.values())
        assert dmi(viewer, "product_serial") == ["serial-1"]
        seen = dmi(viewer, "chassis_vendor", "chassis_version", "chassis_serial", "chassis_asset_tag")
        assert seen == list(chassis.values())[:4]
        assert viewer.sh("grep -c c-sku /sys/firmware/dmi/tables/DMI") == "1"
        assert viewer.sh("cat /sys/class/tpm/tpm0/tpm_version_major") == "2"
        tpm.write_word(viewer.sh)
        write_variable(viewer)
        assert viewer.sh(f"tail -c 8 {VARIABLE}") == "remember"
        power_off(first, client)
    second = start(first.state)
    with second.client() as client, second.console() as viewer:
        client.ask(messages.Sync(machine))
        viewer.expect("GUEST-READY", seconds=BOOT_SECONDS)
        viewer.sh("mount -t efivarfs none /sys/firmware/efi/efivars")
        with never_again("a lost write"):
            assert tpm.has_word(viewer.sh)
            assert viewer.sh(f"tail -c 8 {VARIABLE}") == "remember"


def test_secure_boot_is_seen_by_the_guest(start: Start, test_guest: guest.Guest, tmp_path: Path) -> None:
    """The guest's kernel is a UEFI application signed by Debian; no firmware has Debian's key."""
    pod = start(tmp_path / "claim")
    disk = pod.disks / "root/disk.img"
    disk.parent.mkdir()
    subprocess.run(["mformat", "-C", "-T", "131072", "-i", disk, "::"], check=True)
    subprocess.run(["mmd", "-i", disk, "::/EFI", "::/EFI/BOOT"], check=True)
    subprocess.run(["mcopy", "-i", disk, test_guest.directory / "vmlinuz", "::/EFI/BOOT/BOOTX64.EFI"], check=True)
    subprocess.run(["chown", "-R", "107:107", pod.disks], check=True)
    disks = [{"name": "root", "type": "PersistentVolumeClaim", "source": {"name": "c"}}]
    with pod.client() as client, pod.console() as viewer:
        client.ask(messages.Sync(a_machine(firmware={"bootloader": {"efi": {}}}, devices={**NO_GRAPHICS, "disks": disks})))
        viewer.expect("Access Denied", seconds=BOOT_SECONDS)


def test_volatile_uefi_and_tpm_state_moves_with_the_guest(start: Start, tmp_path: Path) -> None:
    source, target = start(tmp_path / "claim-1"), start(tmp_path / "claim-2")
    firmware = {"bootloader": {"efi": {"secureBoot": False}}, "kernelBoot": DEBIAN_KERNEL_BOOT}
    machine = a_machine(memory={"guest": "256Mi"}, firmware=firmware, devices={**NO_GRAPHICS, "tpm": {}})
    with source.client() as at_source, target.client() as at_target:
        at_source.ask(messages.Sync(machine))
        at_target.ask(messages.PrepareMigrationTarget("m1", machine))
        with source.console() as viewer:
            viewer.expect("GUEST-READY", seconds=BOOT_SECONDS)
            tpm.write_word(viewer.sh)
            write_variable(viewer)
        with relay.connected(source, target):
            at_source.ask(messages.Migrate("m1"))
            ended = at_source.until(lambda status: status.ending, seconds=120).ending
            assert ended is not None
            assert ended.kind == "migrated", source.log.read_text()[-2000:]
            at_target.ask(messages.ReleaseMigration("m1"))
        with target.console() as viewer, never_again("a lost write"):
            assert tpm.has_word(viewer.sh)
            assert viewer.sh(f"tail -c 8 {VARIABLE}") == "remember"
