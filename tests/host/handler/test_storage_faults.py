from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.virt.hardware.plugin_disks import Served
from apiserver.apis.virt.places import layout
from handler.plugins.calling import Plugins
from handler.plugins.deleting import Deleter
from handler.plugins.faults import Fault
from handler.plugins.records import Record, Records
from handler.pods import places
from handler.storage import adding
from handler.storage.adding import DisksFault, PluginDisks
from tests.host.launcher.sandbox import wait_for
from tests.unit.handler.reconcilers.builders import a_vm

pytestmark = [pytest.mark.host, pytest.mark.timeout(120)]

MIB = 1 << 20
DESCRIPTION = '{"version": "1.0.0", "supportedVersions": ["1.0.0"], "kinds": ["storage"]}'
SCRIPT = """#!/bin/sh
told=$(cat)
if [ $KUBEVIRT_COMMAND = VERSION ]; then echo '{description}'; exit; fi
echo "$KUBEVIRT_COMMAND $told" >>{log}
D={directory}
if [ $KUBEVIRT_COMMAND = ADD ]; then
{add}
exit
fi
{otherwise}
"""


def answer(path: str, protocol: str = "file", size: int = 1024, **more: Any) -> str:
    disk = {"protocol": protocol, "path": path, "size": size, **more}
    return "echo '" + json.dumps({"version": "1.0.0", "disk": disk}).replace("$D", "'$D'") + "'"


A_FILE = "head -c 1024 /dev/zero >$D/disk.img; chown 107 $D/disk.img"
THE_FILE, THE_SOCKET = answer("$D/disk.img"), answer("$D/nbd.sock", "nbd")


class Here:
    def __init__(self, tmp_path: Path) -> None:
        self.kubelet, self.uid = tmp_path, str(uuid.uuid4())
        volumes = tmp_path / "pods" / self.uid / "volumes/kubernetes.io~empty-dir"
        for name in (layout.RUN_VOLUME, layout.PLUGIN_DISKS_VOLUME):
            (volumes / name).mkdir(parents=True)
            (volumes / name).chmod(0o777)
        self.volume = volumes / layout.PLUGIN_DISKS_VOLUME
        self.log = tmp_path / "log"
        self.records = Records(tmp_path / "records")
        (tmp_path / "plugins").mkdir()

    def plugin(self, add: str, *, name: str = "images", otherwise: str = "", disk: str = "data") -> None:
        """Install a storage plugin that runs the shell lines ``add`` on ADD, ``otherwise`` on others; ``$D`` is the disk's directory."""
        text = SCRIPT.format(description=DESCRIPTION, log=self.log, directory=self.volume / disk, add=add, otherwise=otherwise)
        path = self.kubelet / "plugins" / name
        path.write_text(text)
        path.chmod(0o755)

    def disks(self, seconds: float = 20.0, limits: adding.Limits = adding.DEFAULT_LIMITS) -> PluginDisks:
        return PluginDisks(self.plugins(seconds), self.records, self.kubelet, limits)

    def plugins(self, seconds: float = 20.0) -> Plugins:
        allowed = frozenset({"images", "other", "absent"})
        return Plugins(self.kubelet / "plugins", {"storage": allowed}, seconds=seconds)

    def calls(self) -> list[tuple[str, dict[str, Any]]]:
        if not self.log.exists():
            return []
        return [(line.partition(" ")[0], json.loads(line.partition(" ")[2])) for line in self.log.read_text().splitlines()]


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path)


def machine(*disks: dict[str, Any]) -> dict[str, Any]:
    vm = a_vm()
    vm["spec"]["domain"]["devices"]["disks"] = list(disks) or [a_disk()]
    return vm


def a_disk(name: str = "data", plugin: str = "images", limit: str | None = "1Mi", **fields: Any) -> dict[str, Any]:
    source: dict[str, Any] = {"plugin": plugin, "options": {"image": "a.img"}}
    return {"name": name, "type": "Plugin", "source": {**source, **({"sizeLimit": limit} if limit else {})}, **fields}


async def said(disks: PluginDisks, vm: dict[str, Any], pod_uid: str) -> DisksFault:
    with pytest.raises(DisksFault) as raised:
        await disks.add(vm, pod_uid)
    return raised.value


@pytest.mark.parametrize(
    ("add", "words"),
    [
        (THE_FILE, "disk.img: No such file or directory"),
        (THE_SOCKET, "nbd.sock: No such file or directory"),
        (f"{A_FILE}; {answer('/etc/passwd')}", "answered with the path '/etc/passwd' instead of /"),
        (f"{A_FILE}; {answer('$D/../data/disk.img')}", "answered with the path"),
        (f"ln -s /etc/passwd $D/disk.img; {THE_FILE}", "disk.img is a symbolic link"),
        (f"mkfifo $D/disk.img; {THE_FILE}", "disk.img is not a regular file"),
        (f"mkdir $D/disk.img; {THE_FILE}", "disk.img is not a regular file"),
        (f"mknod $D/disk.img b 7 0; {THE_FILE}", "disk.img is not a regular file"),
        (f"touch $D/nbd.sock; {THE_SOCKET}", "nbd.sock is not a socket"),
        (f"{A_FILE}; {answer('$D/disk.img', size=2048)}", "disk.img has 1024 bytes, but the plugin reported 2048"),
        (f"{A_FILE}; {answer('$D/disk.img', size=2 * MIB)}", f"source.sizeLimit is {MIB}"),
        (f"{A_FILE}; {answer('$D/disk.img', size=1000)}", "a multiple of 512"),
        (f"{A_FILE}; chown 0:0 $D/disk.img; chmod 600 $D/disk.img; {THE_FILE}", "user 107 may not open disk.img"),
        (f"{A_FILE}; chmod 400 $D/disk.img; {THE_FILE}", "user 107 may not open disk.img"),
        (f"{A_FILE}; {answer('$D/disk.img', 'qcow2')}", "answered with the protocol 'qcow2'"),
        (f"{A_FILE}; {answer('$D/disk.img', format='qcow2')}", "an unknown field of disk: format"),
        (f"{A_FILE}; {answer('$D/disk.img', liveMigration='yes')}", "true or false"),
        ("""echo '{"version": "1.0.0"}'""", "answered without a disk"),
        ("echo nonsense", "did not write a JSON object"),
        ("""echo '{"version": "1.0.0", "code": 11, "msg": "no room"}'; exit 1""", "no room (code 11)"),
    ],
    ids=lambda each: each[-60:],
)
async def test_faulty_plugin_is_reported_with_its_disk_and_retried(here: Here, add: str, words: str) -> None:
    here.plugin(add)
    disks = here.disks()
    fault = await said(disks, machine(), here.uid)
    assert str(fault).startswith("disk 'data': plugin images (ADD) ") or "no room" in str(fault)
    assert words in str(fault)
    assert (fault.reason, fault.final, fault.retry_seconds > 0) == ("PluginFailed", False, True)
    assert str(await said(disks, machine(), here.uid)) == str(fault)
    assert [each for each, _ in here.calls()] == ["ADD"]
    here.plugin(f"rm -rf $D/*; {A_FILE}; {THE_FILE}")
    await asyncio.sleep(fault.retry_seconds)
    assert await disks.add(machine(), here.uid) == {"data": Served("file", 1024)}


async def test_hanging_plugin_is_ended_and_delays_no_other_disk(here: Here) -> None:
    here.plugin("sleep 1000")
    here.plugin(f"{A_FILE}; {THE_FILE}", name="other", disk="fine")
    fault = await said(here.disks(seconds=0.5), machine(a_disk(), a_disk("fine", "other")), here.uid)
    assert str(fault) == "disk 'data': plugin images (ADD) did not answer within 0.5 s and was killed"
    assert fault.reason == "PluginTimedOut"
    assert (here.volume / "fine/disk.img").exists()


async def test_missing_plugin_and_permanent_error_are_distinguished(here: Here) -> None:
    fault = await said(here.disks(), machine(a_disk(plugin="absent")), here.uid)
    assert str(fault).startswith("disk 'data': plugin absent is not on this node: ")
    assert (fault.reason, fault.final) == ("PluginNotFound", False)
    here.plugin("""echo '{"version": "1.0.0", "code": 7, "msg": "no such pool"}'; exit 1""")
    fault = await said(here.disks(), machine(), here.uid)
    assert ("no such pool" in str(fault), fault.final) == (True, True)


@pytest.fixture
def listener(here: Here, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    (here.volume / "data").mkdir()
    monkeypatch.chdir(here.volume / "data")  # sun_path is short, paths of tests are long
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("nbd.sock")
        Path("nbd.sock").chmod(0o666)
        here.plugin(THE_SOCKET)
        yield made


async def test_a_socket_without_an_nbd_server(here: Here, listener: socket.socket) -> None:
    assert "cannot connect to the plugin's socket nbd.sock: Connection refused" in str(await said(here.disks(), machine(), here.uid))
    listener.listen(8)
    impatient = here.disks(limits=adding.Limits(greeting_seconds=0.3))
    assert "its NBD server sent no greeting within 0.3 s" in str(await said(impatient, machine(), here.uid))
    listener.accept()[0].close()
    for words, told in ((b"220 smtp.example ESMTP\r\n", "is not an NBD server"), (b"", "it closed the connection")):
        task = asyncio.get_running_loop().run_in_executor(None, _say, listener, words)
        assert told in str(await said(here.disks(), machine(), here.uid))
        await task
    Path("nbd.sock").chmod(0o600)
    assert "user 107 may not connect to nbd.sock" in str(await said(here.disks(), machine(), here.uid))


def _say(listener: socket.socket, words: bytes) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.sendall(words)


def serve(here: Here, *options: str) -> subprocess.Popen[bytes]:
    directory = here.volume / "data"
    directory.mkdir(exist_ok=True)
    image = here.kubelet / "image"
    image.write_bytes(bytes(4 * MIB))
    command = ["qemu-nbd", "--persistent", "--shared=8", "--format=raw", "--socket=/proc/self/cwd/nbd.sock", *options, str(image)]
    process = subprocess.Popen(command, cwd=directory)
    try:
        wait_for((directory / "nbd.sock").exists, 30, "qemu-nbd")
        os.chown(directory / "nbd.sock", layout.USER_ID, -1)
    except BaseException:  # the caller cannot end a server that was not returned
        process.kill()
        process.wait()
        raise
    return process


@pytest.mark.parametrize(
    ("options", "answered", "words"),
    [
        ((), answer("$D/nbd.sock", "nbd", 8 * MIB), f"its NBD server offers {4 * MIB} bytes, but the plugin reported {8 * MIB}"),
        ((), answer("$D/nbd.sock", "nbd", 4 * MIB, export="other"), "it refuses: it has no such export"),
        (("--read-only",), answer("$D/nbd.sock", "nbd", 4 * MIB), "is read-only, but the disk is not"),
        (("--read-only",), None, ""),
        (("--export-name=vms/a",), answer("$D/nbd.sock", "nbd", 4 * MIB, export="vms/a", liveMigration=True), ""),
    ],
    ids=["size", "export", "read-only", "both read-only", "fine"],
)
async def test_nbd_server_must_match_the_plugins_answer(here: Here, options: tuple[str, ...], answered: str | None, words: str) -> None:
    here.plugin(answered or answer("$D/nbd.sock", "nbd", 4 * MIB))
    process = serve(here, *options)
    try:
        vm = machine(a_disk(limit=None, readOnly=answered is None))
        if words:
            assert words in str(await said(here.disks(), vm, here.uid))
        else:
            (served,) = (await here.disks().add(vm, here.uid)).values()
            assert served == Served("nbd", 4 * MIB, "vms/a" if answered else "", live_migration=answered is not None)
    finally:
        process.kill()
        process.wait()


def _link(here: Here) -> None:
    (here.volume / "data").symlink_to(here.kubelet / "elsewhere")


def _directory(here: Here) -> None:
    (here.volume / "data").mkdir()
    os.chown(here.volume / "data", layout.USER_ID, layout.USER_ID)


@pytest.mark.parametrize("prepare", [_link, _directory], ids=["link", "directory"])
async def test_a_pod_cannot_lead_a_plugin_elsewhere(here: Here, prepare: Callable[[Here], None]) -> None:
    (here.kubelet / "elsewhere").mkdir()
    here.plugin(f"{A_FILE}; {THE_FILE}")
    prepare(here)
    fault = await said(here.disks(), machine(), here.uid)
    assert "in the pod's volume plugin-disks " in str(fault)
    assert here.calls() == []
    assert list((here.kubelet / "elsewhere").iterdir()) == []


async def test_mounted_file_is_refused(here: Here) -> None:
    here.plugin(f"{A_FILE}; mount --bind $D/disk.img $D/disk.img; {THE_FILE}")
    try:
        assert "disk.img contains a symbolic link or a mount point" in str(await said(here.disks(), machine(), here.uid))
    finally:
        subprocess.run(["umount", here.volume / "data" / "disk.img"], check=True)


async def test_pod_cannot_replace_the_plugins_files(here: Here) -> None:
    here.plugin(f"{A_FILE}; {THE_FILE}")
    os.chown(here.volume, layout.USER_ID, layout.USER_ID)
    await here.disks().add(machine(), here.uid)
    for attack in (["chmod", "777", "."], ["mv", "data", "other"], ["rm", "data/disk.img"], ["ln", "-s", "/etc", "here"]):
        done = subprocess.run(["setpriv", "--reuid=107", "--regid=107", "--clear-groups", *attack], cwd=here.volume, check=False)
        assert done.returncode
    subprocess.run(
        ["setpriv", "--reuid=107", "--regid=107", "--clear-groups", "sh", "-c", "echo x >>data/disk.img"], cwd=here.volume, check=True
    )


async def test_a_plugin_is_told_what_its_documentation_says(here: Here) -> None:
    here.plugin(f"{A_FILE}; {THE_FILE}")
    await here.disks().add(machine(a_disk(readOnly=True, device="cdrom")), here.uid)
    ((command, told),) = here.calls()
    directory = str(here.volume / "data")
    assert command == "ADD"
    assert told == {
        "version": "1.0.0",
        "kind": "storage",
        "plugin": "images",
        "machine": {"namespace": "default", "name": "testvm", "uid": "vm-1"},
        "pod": {"namespace": "default", "uid": here.uid},
        "user": 107,
        "disk": {
            "name": "data",
            "device": "cdrom",
            "readOnly": True,
            "options": {"image": "a.img"},
            "directory": directory,
            "socket": f"{directory}/nbd.sock",
            "image": f"{directory}/disk.img",
            "sizeLimit": MIB,
        },
    }


async def test_restarted_handler_checks_disks_and_adds_none(here: Here) -> None:
    here.plugin(f"{A_FILE}; {THE_FILE}")
    first = here.disks()
    await first.add(machine(), here.uid)
    assert await first.check(machine(), here.uid, ()) is None
    later = here.disks()
    assert await later.check(machine(), here.uid, ()) is None
    assert await later.check(machine(), here.uid, ()) is None
    (_, added), (command, checked) = here.calls()
    assert command == "CHECK"
    disk = {"protocol": "file", "path": f"{here.volume}/data/disk.img", "size": 1024}
    assert checked == {**added, "prevResult": {"version": "1.0.0", "disk": disk}}


async def test_check_error_is_reported_until_it_is_resolved(here: Here) -> None:
    here.plugin(f"{A_FILE}; {THE_FILE}")
    disks = here.disks(limits=adding.Limits(first_check_seconds=0.01))
    await disks.add(machine(), here.uid)
    here.plugin("exit 1", otherwise="""echo '{"version": "1.0.0", "code": 5, "msg": "the pool is away"}'; exit 1""")
    assert (await disks.check(machine(), here.uid, ()), disks.is_wrong(here.uid)) == (None, False)
    fault = await disks.check(machine(), here.uid, ("data",))
    assert str(fault) == "disk 'data': plugin images (CHECK): the pool is away (code 5)"
    assert disks.is_wrong(here.uid)
    here.plugin("exit 1", otherwise="exit 0")
    async with asyncio.timeout(20):
        while await disks.check(machine(), here.uid, ()) is not None:
            await asyncio.sleep(0.02)
    assert [command for command, _ in here.calls()].count("ADD") == 1


async def test_disk_is_deleted_after_its_pod_by_any_handler(here: Here) -> None:
    here.plugin(f"{A_FILE}; {THE_FILE}", otherwise="echo 'the pool is away' >&2; exit 1")
    await here.disks().add(machine(), here.uid)
    faults: list[tuple[Record, Fault]] = []
    deleter = Deleter(
        Records(here.kubelet / "records"),
        here.plugins().call,
        lambda uid: places.has_volumes(uid, here.kubelet),
        lambda *each: faults.append(each),
        first_retry_seconds=0.01,
    )
    await deleter.look()
    assert [command for command, _ in here.calls()] == ["ADD"]
    (here.volume.parent / layout.RUN_VOLUME).rmdir()
    await deleter.look()
    ((record, fault),) = faults
    assert (record.element, record.plugin, "plugin images (DEL)" in str(fault)) == ("data", "images", True)
    here.plugin("exit 1")
    async with asyncio.timeout(20):
        while list(here.records.all()):
            await deleter.look()
            await asyncio.sleep(0.02)
    (_, added), *_, (command, told) = here.calls()
    assert command == "DEL"
    assert told["prevResult"]["disk"]["size"] == 1024
    assert {**told, "prevResult": None} == {**added, "prevResult": None}
    assert list((here.kubelet / "records").iterdir()) == []
