from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from launcher.protocol import messages
from tests.damage import never_again
from tests.host.launcher.sandbox import Launcher, a_machine

pytestmark = [pytest.mark.host, pytest.mark.timeout(600)]


def a_machine_with(**disk: object) -> messages.Machine:
    disks = [{"name": "data", "type": "PersistentVolumeClaim", "source": {"name": "c"}, **disk}]
    return a_machine(devices={"disks": disks, "graphics": [], "interfaces": []})


def test_shareable_disk_is_written_by_two_guests_and_no_third(start: Callable[[], Launcher]) -> None:
    pods = [start() for _ in range(3)]
    first = pods[0].disks / "data/disk.img"
    for pod in pods:
        (pod.disks / "data").mkdir()
        if pod is pods[0]:
            first.write_bytes(bytes(4 << 20))
        else:
            (pod.disks / "data/disk.img").hardlink_to(first)
    os.chown(first, 107, 107)
    with pods[0].client() as one, pods[1].client() as two, pods[0].console() as mine, pods[1].console() as theirs:
        one.ask(messages.Sync(a_machine_with(shareable=True)))
        two.ask(messages.Sync(a_machine_with(shareable=True)))
        with pods[2].client() as third:
            refused = third.call(messages.Sync(a_machine_with()))
            assert isinstance(refused, messages.Refusal)
            assert "lock" in refused.message
        for viewer in (mine, theirs):
            viewer.expect("GUEST-READY")
        mine.sh("echo from-the-first | dd of=/dev/vda oflag=direct bs=512 conv=sync,notrunc,fsync")
        with never_again("a lost write"):
            assert theirs.sh("dd if=/dev/vda iflag=direct bs=512 count=1 2>/dev/null | head -c 14") == "from-the-first"
        theirs.sh("echo from-the-second | dd of=/dev/vda seek=1 oflag=direct bs=512 conv=sync,notrunc,fsync")
        with never_again("a lost write"):
            assert mine.sh("dd if=/dev/vda iflag=direct bs=512 skip=1 count=1 2>/dev/null | head -c 15") == "from-the-second"
    with never_again("a lost write"):
        assert first.read_bytes()[:14] == b"from-the-first"
