"""A Debian as clouds have it, on the network of a pod, set up by cloud-init, and logged in to by SSH: one boot for all looks."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt import layout
from handler.network import setup
from launcher.protocol import messages
from tests.host.handler import pods
from tests.host.handler.test_guest_packets import VM
from tests.host.launcher import cloud, guest, sandbox
from tests.host.launcher.sandbox import Launcher, wait_for
from tests.testbed import ssh

pytestmark = [pytest.mark.host, pytest.mark.timeout(1500)]

BOOT_SECONDS: Final = 1200
"""An emulator alone on one processor needs two minutes; beside other work, ten times that."""
UID: Final = "7b1f4a0e-0000-4000-8000-000000000002"
USER_DATA: Final = """#cloud-config
ssh_authorized_keys: [{key}]
write_files:
- path: /etc/greeting
  content: |
    written at the first boot
runcmd:
- echo ran-as-$(id --user --name) > /run/ran
"""


@dataclass(frozen=True)
class Login:
    """SSH to the guest from where the other end of the pod's cable is, with a key made for this test."""

    caller: str
    key: Path

    def try_run(self, command: str, key: Path) -> subprocess.CompletedProcess[str]:
        arguments = ["ip", "netns", "exec", self.caller, *ssh.command(key, "debian", pods.POD), command]
        return subprocess.run(arguments, capture_output=True, text=True, timeout=300, check=False)

    def run(self, command: str) -> str:
        done = self.try_run(command, self.key)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


def give_disk(launcher: Launcher) -> Object:
    """Put the disk where the kubelet mounts the image's volume, and return the machine's disk."""
    place = launcher.images / "root" / cloud.INSIDE
    place.parent.mkdir(parents=True)
    try:
        os.link(cloud.disk(), place)
    except OSError:  # another file system
        shutil.copyfile(cloud.disk(), place)
    subprocess.run(["chmod", "-R", "a+rX", launcher.images], check=True)
    return {"name": "root", "type": "Image", "source": {"reference": "x", "path": cloud.INSIDE}}


def give_tun(launcher: Launcher) -> None:
    """Let the launcher, which runs already, open /dev/net/tun: as in a pod, where virt-handler gives it to the launcher's user."""
    node = launcher.images / "tun"
    os.mknod(node, stat.S_IFCHR | 0o600, os.makedev(10, 200))
    os.chown(node, layout.USER_ID, layout.USER_ID)
    mount = ["mount", "--bind", f"{layout.IMAGES_DIRECTORY}/tun", "/dev/net/tun"]
    subprocess.run(["nsenter", f"--target={launcher.process.pid}", "--mount", *mount], check=True)


@pytest.fixture
def pod() -> Iterator[pods.Pod]:
    with pods.a_pod() as made:
        yield made


async def test_cloud_init_sets_it_up_ssh_lets_its_owner_in_and_the_power_button_ends_it(
    pod: pods.Pod, program: Path, test_guest: guest.Guest, tmp_path: Path
) -> None:
    (interface,) = await setup.prepare(VM, pod.launcher)
    login = Login(pod.caller, ssh.make_key(tmp_path / "key"))
    launcher = pod.inside(lambda: Launcher(program, tmp_path / "pod", test_guest))
    seed: Object = {
        "type": "CloudInitNoCloud",
        "name": "seed",
        "source": {"userData": USER_DATA.format(key=ssh.public(login.key).read_text().strip())},
    }
    domain = {
        "memory": {"guest": "512Mi"},
        # With cmpxchg16b QEMU 7.2 spoils the flags now and then, and Linux panics. QEMU 10, which virt-launcher's image has, does not.
        "cpu": {"model": "Opteron_G1"},
        "firmware": {},
        "devices": {"graphics": [], "interfaces": [{"name": "default"}], "disks": [give_disk(launcher), seed]},
    }
    wired = messages.Interface(interface.name, interface.mac, interface.tap, interface.model)
    machine = messages.Machine("default", "cloudy", UID, domain, "qemu", (wired,), 600.0)
    with sandbox.killed_afterwards([launcher]), launcher.client() as client, launcher.console() as viewer:
        give_tun(launcher)
        client.ask(messages.Sync(machine))
        viewer.expect("Cloud-init v.", BOOT_SECONDS)
        viewer.expect("finished at", BOOT_SECONDS)

        assert login.run("cloud-init status; cat /etc/greeting; cat /run/ran") == "status: done\nwritten at the first boot\nran-as-root"
        stranger = login.try_run("id", ssh.make_key(tmp_path / "stranger"))
        assert (stranger.returncode, stranger.stdout) == (255, "")
        assert "Permission denied (publickey)" in stranger.stderr
        assert login.run("hostname; sudo id --user --name").split() == ["cloudy", "root"]
        # Of 2 GiB, of which the image's file system takes less than half.
        assert int(login.run("df --output=size --block-size=1M / | tail -n 1")) > 1800
        assert login.run("systemctl list-units --failed --plain --no-legend") == ""

        def told() -> bool:
            status = client.ask(messages.GetStatus())
            return (status.agent.os_id, status.agent.hostname) == ("debian", "cloudy")

        wait_for(told, 300, "what the guest agent tells")
        client.ask(messages.Shutdown(600.0))
        ending = client.until(lambda status: status.ending, 600).ending
        assert ending is not None
        assert ending.kind == "shutdown-requested"
    assert launcher.wait(60) == 0


def test_it_starts_by_uefi_with_secure_boot(program: Path, test_guest: guest.Guest, tmp_path: Path) -> None:
    """As far as the kernel's own word: firmware, boot loaders and kernel have checked each other by then."""
    launcher = Launcher(program, tmp_path / "pod", test_guest)
    with sandbox.killed_afterwards([launcher]), launcher.client() as client, launcher.console() as viewer:
        domain = {
            "memory": {"guest": "512Mi"},
            "machine": {"type": "q35"},
            "firmware": {"bootloader": {"efi": {}}},
            "devices": {**sandbox.NO_GRAPHICS, "disks": [give_disk(launcher)]},
        }
        client.ask(messages.Sync(messages.Machine("default", "cloudy", UID, domain, "qemu", (), 5.0)))
        viewer.expect("secureboot: Secure boot enabled", BOOT_SECONDS)
