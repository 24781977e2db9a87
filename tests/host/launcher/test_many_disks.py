from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from launcher.protocol import messages
from tests.host.launcher.sandbox import Launcher, a_machine

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]


def test_the_guest_sees_each_disk_on_scsi(start: Callable[[], Launcher]) -> None:
    disks: list[dict[str, Any]] = [
        {"name": f"d{size}", "type": "EmptyDisk", "source": {"size": f"{size}Mi"}, "target": {"bus": "scsi"}} for size in range(1, 17)
    ]
    pod = start()
    with pod.client() as client, pod.console() as viewer:
        client.ask(messages.Sync(a_machine(devices={"disks": disks, "graphics": [], "interfaces": []})))
        viewer.expect("GUEST-READY", 240)
        sizes = viewer.sh("cat /sys/block/sd*/size")
    assert sorted(int(size) // 2048 for size in sizes.split()) == list(range(1, 17))
