from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.protocol import messages
from tests.damage import never_again
from tests.host.launcher.guest import Guest
from tests.host.launcher.sandbox import Launcher, a_machine, killed_afterwards
from tests.host.launcher.servers import NfsServer

pytestmark = [pytest.mark.host, pytest.mark.timeout(600)]
MIB = 1 << 20
NAMESPACE = "nfs-disks"
USER, GROUP = 4107, 4108


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NfsServer]:
    with NfsServer(NAMESPACE, tmp_path / "server") as found:
        yield found


def an_image(server: NfsServer, name: str, owner: tuple[int, int], content: bytes) -> Path:
    path = server.export / name
    path.write_bytes(content.ljust(4 * MIB, b"\0"))
    os.chown(path, *owner)
    path.chmod(0o600)
    return path


def test_a_guest_reads_and_writes_the_file_of_an_nfs_server(server: NfsServer, program: Path, test_guest: Guest, tmp_path: Path) -> None:
    written, foreign = (
        an_image(server, "a b,c.img", (107, 107), b"from-the-server"),
        an_image(server, "d.img", (USER, GROUP), b"QFI\xfb-of-a-guest"),
    )
    place, identity = {"host": server.address}, {"user": USER, "group": GROUP}
    disks = [
        {"name": "data", "type": "NFS", "source": {**place, "path": str(written)}},
        {"name": "foreign", "type": "NFS", "source": {**place, "path": str(foreign), "identity": identity}},
    ]
    machine = a_machine(devices={"disks": disks, "graphics": [], "interfaces": []})
    pods: list[Launcher] = []
    with killed_afterwards(pods):
        pods.append(Launcher(program, tmp_path / "pod", test_guest, network=NAMESPACE))
        with pods[0].client() as client, pods[0].console() as viewer:
            answer = client.call(messages.Sync(machine))
            assert isinstance(answer, messages.Refusal)
            assert (answer.reason, answer.disks) == ("NotReady", ("data", "foreign"))
            server.start()
            status = client.ask(messages.Sync(machine))
            assert status.not_migratable == ""
            viewer.expect("GUEST-READY", seconds=120)
            assert viewer.sh("head -c 15 /dev/vda; cat /sys/block/vda/size") == f"from-the-server{4 * MIB // 512}"
            assert (
                viewer.sh("head -c 15 /dev/vdb | tail -c 12; echo by-guest | dd of=/dev/vdb conv=fsync 2>/dev/null") == "\ufffd-of-a-guest"
            )
            with never_again("a lost write"):
                assert foreign.read_bytes().startswith(b"by-guest")

            server.kill()
            viewer.type("echo written-meanwhile | dd of=/dev/vda conv=fsync; echo CO''PIED $?\n")
            client.until(lambda status: set(status.servers_silent) == {"data", "foreign"}, seconds=120)
            server.start()
            assert viewer.expect("COPIED 0", seconds=180)
            with never_again("a lost write"):
                assert written.read_bytes().startswith(b"written-meanwhile")
            client.until(lambda status: status.servers_silent == (), seconds=120)


def test_a_file_that_is_not_there_or_not_the_users_is_told(server: NfsServer, program: Path, test_guest: Guest, tmp_path: Path) -> None:
    server.start()
    an_image(server, "foreign.img", (USER, GROUP), b"")
    for name, words in (("none.img", "NFS3ERR_NOENT"), ("foreign.img", "ACCESS denied")):
        pods = [Launcher(program, tmp_path / name, test_guest, network=NAMESPACE)]
        disk = {"name": "data", "type": "NFS", "source": {"host": server.address, "path": str(server.export / name)}}
        with killed_afterwards(pods), pods[0].client() as client:
            answer = client.call(messages.Sync(a_machine(devices={"disks": [disk], "graphics": [], "interfaces": []})))
            assert isinstance(answer, messages.Refusal)
            assert (answer.reason, words in answer.message) == ("Failed", True), answer.message
