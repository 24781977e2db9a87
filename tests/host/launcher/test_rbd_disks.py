from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from launcher.protocol import messages
from tests.damage import never_again
from tests.host.launcher.ceph import Ceph
from tests.host.launcher.sandbox import Launcher, a_machine
from tests.mounted import mount

pytestmark = [pytest.mark.host, pytest.mark.timeout(600)]
MIB = 1 << 20


@pytest.fixture(scope="module")
def ceph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ceph]:
    with Ceph(tmp_path_factory.mktemp("ceph") / "cluster") as found:
        yield found


def a_request(ceph: Ceph, image: str, **fields: Any) -> messages.Sync:
    source = {"monitors": [f"127.0.0.1:{ceph.port}"], "image": image, "user": "vms", "secretRef": {"name": "key"}}
    disk = {"name": "data", "type": "RBD", "source": source, **fields}
    return messages.Sync(a_machine(devices={"disks": [disk], "graphics": [], "interfaces": []}))


def test_a_guest_reads_and_writes_an_image_of_ceph(ceph: Ceph, start: Callable[[], Launcher]) -> None:
    key = ceph.user("vms")
    ceph.add("vm-1", b"from-the-cluster".ljust(4 * MIB, b"\0"))
    pod = start()
    mount(pod.sources / "data", {"key": f"{key}\n".encode()})
    with pod.client() as client, pod.console() as viewer:
        assert client.ask(a_request(ceph, "vm-1")).not_migratable == ""
        viewer.expect("GUEST-READY", seconds=120)
        assert viewer.sh("head -c 16 /dev/vda; cat /sys/block/vda/size") == f"from-the-cluster{4 * MIB // 512}"
        viewer.sh("echo written-by-guest | dd of=/dev/vda conv=fsync")
        with never_again("a lost write"):
            assert ceph.content("vm-1").startswith(b"written-by-guest")

        assert key not in client.read("domainxml")
        (qemu,) = pod.qemu()
        files = [Path(f"/proc/{qemu}/cmdline"), *(each for each in (*pod.run_directory.rglob("*"), pod.log) if each.is_file())]
        known = (key.encode(), base64.b64decode(key))
        assert [each for each in files if any(secret in each.read_bytes() for secret in known)] == []

        ceph.kill_monitor()
        client.until(lambda status: status.servers_silent == ("data",), seconds=120)
        ceph.start_monitor()
        client.until(lambda status: status.servers_silent == (), seconds=120)
        viewer.sh("echo written-afterwards | dd of=/dev/vda conv=fsync")
        with never_again("a lost write"):
            assert ceph.content("vm-1").startswith(b"written-afterwards")


def test_missing_image_and_wrong_key_are_reported(ceph: Ceph, start: Callable[[], Launcher]) -> None:
    ceph.add("vm-2", bytes(MIB))
    keys = {"none": ceph.user("vms"), "vm-2": ceph.user("another")}
    for image, words in (
        ("none", "its image: error reading header from none: No such file or directory"),
        ("vm-2", "its image was not opened within 15 s: check the key of the Ceph user, and whether the OSDs answer"),
    ):
        pod = start()
        mount(pod.sources / "data", {"key": keys[image].encode()})
        with pod.client() as client:
            answer = client.call(a_request(ceph, image))
            assert isinstance(answer, messages.Refusal)
            assert (answer.reason, answer.message) == ("Failed", f"disk 'data': {words}")
