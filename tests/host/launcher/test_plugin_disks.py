from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.virt.places import layout
from launcher.protocol import messages
from tests.damage import never_again
from tests.host.launcher.sandbox import Launcher, a_machine, wait_for
from tests.host.launcher.test_network_disks import MIB, an_image, paused_by_a_fault

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]


class Served:
    def __init__(self, image: Path, directory: Path) -> None:
        directory.mkdir()
        self._socket = directory / "nbd.sock"
        self._command = ["qemu-nbd", "--persistent", "--shared=8", "--format=raw", f"--socket={self._socket}", str(image)]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._socket.unlink(missing_ok=True)
        self._process = subprocess.Popen(self._command)
        try:
            wait_for(self._socket.exists, 30, "qemu-nbd")
        except BaseException:  # the caller cannot close a server that did not start
            self.kill()
            raise
        os.chown(self._socket, layout.USER_ID, layout.USER_ID)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def a_disk(name: str, protocol: str, **fields: Any) -> dict[str, Any]:
    said = {"protocol": protocol, "size": 4 * MIB, "export": "", "liveMigration": False}
    return {"name": name, "type": "Plugin", "source": {"plugin": "images", "served": said}, **fields}


def test_a_guest_reads_and_writes_disks_of_plugins(start: Callable[[], Launcher], tmp_path: Path) -> None:
    pod = start()
    written = an_image(tmp_path / "written", b"from-the-plugin")
    server = Served(written, pod.plugin_disks / "data")
    directory = pod.plugin_disks / "kept"
    directory.mkdir()
    kept = an_image(directory / "disk.img", b"QFI\xfb-of-a-guest")
    os.chown(kept, layout.USER_ID, layout.USER_ID)
    disks = [a_disk("data", "nbd"), a_disk("kept", "file", target={"bus": "scsi"})]
    request = messages.Sync(a_machine(devices={"disks": disks, "graphics": [], "interfaces": []}))
    try:
        with pod.client() as client, pod.console() as viewer:
            answer = client.call(request)
            assert isinstance(answer, messages.Refusal)
            assert (answer.reason, answer.disks) == ("NotReady", ("data",))

            server.start()
            status = client.ask(request)
            assert status.not_migratable == "the disk 'data' is set up only on its node, by plugin 'images'"
            viewer.expect("GUEST-READY", seconds=120)
            assert viewer.sh("head -c 15 /dev/vda; cat /sys/block/vda/size") == f"from-the-plugin{4 * MIB // 512}"
            assert viewer.sh("head -c 14 /dev/sda | tail -c 10; cat /sys/block/sda/ro") == "-of-a-gues0"
            viewer.sh("echo written-by-guest | dd of=/dev/sda conv=fsync")
            with never_again("a lost write"):
                assert kept.read_bytes().startswith(b"written-by-guest")

            server.kill()
            viewer.type("echo written-meanwhile | dd of=/dev/vda conv=fsync; echo CO''PIED $?\n")
            client.until(paused_by_a_fault, seconds=120)
            client.until(lambda status: status.servers_silent == ("data",))
            server.start()
            assert viewer.expect("COPIED 0", seconds=120)
            with never_again("a lost write"):
                assert written.read_bytes().startswith(b"written-meanwhile")
            client.until(lambda status: status.servers_silent == ())
    finally:
        server.kill()
