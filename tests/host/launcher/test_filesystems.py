from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.virt.places import layout
from launcher.protocol import messages
from tests.damage import never_again
from tests.host.launcher import guest, sandbox
from tests.host.launcher.sandbox import NO_GRAPHICS, Launcher, a_machine, alive, wait_for
from tests.mounted import mount
from tests.testbed import virtiofsd

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]
Start = Callable[..., Launcher]
CLAIM: dict[str, Any] = {"name": "data", "type": "PersistentVolumeClaim", "source": {"name": "shared"}}
FIXED: dict[str, Any] = {"name": "fixed", "type": "PersistentVolumeClaim", "source": {"name": "other"}, "readOnly": True}
CONFIG: dict[str, Any] = {"name": "settings", "type": "ConfigMap", "source": {"name": "settings"}}
USER = "echo u:x:1000:1000::/:/bin/sh > /etc/passwd; echo u:x:1000: > /etc/group"


@pytest.fixture(scope="module")
def test_guest() -> guest.Guest:
    return guest.build(modules=(*guest.MODULES, "virtiofs"))


@pytest.fixture
def start(program: Path, test_guest: guest.Guest, tmp_path: Path) -> Iterator[Start]:
    launchers: list[Launcher] = []

    def make(**options: Any) -> Launcher:
        pod = Launcher(program, tmp_path / f"pod{len(launchers)}", test_guest, virtiofsd=virtiofsd.directory(), **options)
        launchers.append(pod)
        return pod

    with sandbox.killed_afterwards(launchers):
        yield make


def a_claim(pod: Launcher, name: str) -> Path:
    directory = pod.filesystems / name
    directory.mkdir()
    directory.chmod(0o2775)
    os.chown(directory, 0, layout.USER_ID)
    return directory


def servers(pod: Launcher) -> dict[str, int]:
    children = Path(f"/proc/{pod.process.pid}/task/{pod.process.pid}/children").read_text().split()
    words = {int(pid): Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0") for pid in children}
    start = f"--shared-dir={layout.FILESYSTEMS_DIRECTORY}/"
    return {each.removeprefix(start): pid for pid, command in words.items() for each in command if each.startswith(start)}


def test_a_guest_shares_a_claim_and_follows_a_config_map(start: Start) -> None:
    pod = start(filesystems="2M")
    claim, fixed = a_claim(pod, "data"), a_claim(pod, "fixed")
    (fixed / "file").write_text("fixed")
    mount(pod.filesystems / "settings", {"key": b"before"})
    with pod.client() as client, pod.console() as viewer:
        client.ask(messages.Sync(a_machine(devices={**NO_GRAPHICS, "filesystems": [CLAIM, FIXED, CONFIG]})))
        assert "file system 'data'" in client.status.not_migratable
        viewer.expect("GUEST-READY", seconds=120)
        for name in ("data", "fixed", "settings"):
            assert viewer.sh(f"mkdir -p /etc /{name}; mount -t virtiofs {name} /{name} 2>&1") == ""
        assert viewer.sh("cat /settings/key /fixed/file") == "beforefixed"
        for command in ("echo x > /settings/key", "rm /settings/key", "echo x > /fixed/file", "chmod 777 /fixed"):
            assert "Read-only file system" in viewer.sh(f"({command}) 2>&1")

        (claim / "outside").write_text("from outside")
        assert viewer.sh("cat /data/outside; echo from the guest > /data/inside") == "from outside"
        with never_again("a lost write"):
            assert (claim / "inside").read_text() == "from the guest\n"

        # All users of the guest are user 107 of the pod, which the guest sees as root.
        assert ((claim / "inside").stat().st_uid, (claim / "inside").stat().st_gid) == (107, 107)
        assert viewer.sh(f"{USER}; mkdir -m 1777 /data/all; su u -c 'echo x > /data/all/file'; stat -c %u /data/all/file") == "0"
        assert (claim / "all/file").stat().st_uid == 107
        assert viewer.sh("chown 1000 /data/inside; stat -c %u /data/inside; chmod 600 /data/inside") == "0"
        assert (claim / "inside").stat().st_mode & 0o777 == 0o600
        assert "Permission denied" in viewer.sh("su u -c 'cat /data/inside' 2>&1")
        assert "not permitted" in viewer.sh("mknod /data/device c 1 3 2>&1")

        # A link out of the directory leads into the guest's own file system; nothing outside follows it.
        assert viewer.sh("echo of the guest > /tmp/passwd; ln -s ../../../../../tmp/passwd /data/link; cat /data/link") == "of the guest"
        (claim / "away").symlink_to(f"../../../../..{pod.filesystems}")
        assert "No such file" in viewer.sh("ls /data/away/ 2>&1")

        # A full claim.
        assert "No space left on device" in viewer.sh("dd if=/dev/zero of=/data/big bs=64k count=100 2>&1")
        assert viewer.sh("rm /data/big; echo again > /data/small; cat /data/small") == "again"

        # Files that the kubelet replaces.
        mount(pod.filesystems / "settings", {"key": b"after", "more": b""})
        wait_for(lambda: viewer.sh("cat /settings/key") == "after", 60, "the new content")
        assert viewer.sh("ls /settings") == "key   more"

        # After a reboot.
        before = servers(pod)
        viewer.type("reboot -f\n")
        viewer.expect("GUEST-READY", seconds=120)
        assert viewer.sh("mkdir /data; mount -t virtiofs data /data; cat /data/outside") == "from outside"
        assert servers(pod) == before
        assert sorted(before) == ["data", "fixed", "settings"]

        # A file system without its server hangs; everything else works.
        os.kill(before["data"], signal.SIGKILL)
        assert client.until(lambda status: status.lost_filesystems, seconds=60).lost_filesystems == ("data",)
        viewer.type("ls /data &\n")
        assert viewer.sh("mkdir /settings; mount -t virtiofs settings /settings; cat /settings/key") == "after"
        with suppress(EOFError):  # the pod may end before it answers
            client.ask(messages.Shutdown(0))
    assert pod.wait() == 0
    assert not any(alive(each) for each in before.values())


def test_unservable_file_system_fails_the_start(start: Start) -> None:
    pod = start()
    with pod.client() as client:
        answer = client.call(messages.Sync(a_machine(devices={**NO_GRAPHICS, "filesystems": [CLAIM]})))
        assert isinstance(answer, messages.Refusal)
        assert answer.message.startswith("file system 'data': virtiofsd ended with ")
        assert "No such file or directory" in answer.message or "not exist" in answer.message
    assert pod.wait() == 1
