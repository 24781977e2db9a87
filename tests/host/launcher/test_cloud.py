from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from apiserver.apis.meta.objects import Object
from launcher.protocol import messages
from tests.host.launcher import cloud, guest, sandbox
from tests.host.launcher.sandbox import Launcher

pytestmark = [pytest.mark.host, pytest.mark.timeout(1500)]

BOOT_SECONDS: Final = 1200
"""An emulator alone on a processor takes two minutes."""
UID: Final = "7b1f4a0e-0000-4000-8000-000000000002"


def give_disk(launcher: Launcher) -> Object:
    place = launcher.images / "root" / cloud.INSIDE
    place.parent.mkdir(parents=True)
    try:
        os.link(cloud.disk(), place)
    except OSError:  # in another file system
        shutil.copyfile(cloud.disk(), place)
    subprocess.run(["chmod", "-R", "a+rX", launcher.images], check=True)
    return {"name": "root", "type": "Image", "source": {"reference": "x", "path": cloud.INSIDE}}


def test_guest_boots_by_uefi_with_secure_boot(program: Path, test_guest: guest.Guest, tmp_path: Path) -> None:
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
