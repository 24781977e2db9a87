from __future__ import annotations

import base64
import dataclasses
import json
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.virt.hardware import cloud_init
from controller.reconcilers.launcher_pods.disks import made_bytes
from launcher.protocol import messages
from tests.host.launcher.sandbox import NO_GRAPHICS, Launcher, Viewer, a_machine
from tests.mounted import mount

pytestmark = [pytest.mark.host, pytest.mark.timeout(240)]

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIhypotheticalhypotheticalhypothetical somebody@example"
USER_DATA = "#cloud-config\nruncmd: [echo 'ünï']\n"
PASSWORD = "the-password-that-nobody-logs"
NO_CLOUD: Mapping[str, Any] = {
    "name": "seed",
    "type": "CloudInitNoCloud",
    "device": "cdrom",
    "target": {"bus": "scsi"},
    "source": {"userDataBase64": base64.b64encode(USER_DATA.encode()).decode(), "networkDataSecretRef": {"name": "n"}},
}
OTHER: Mapping[str, Any] = {
    "name": "other",
    "type": "CloudInitNoCloud",
    "source": {"userDataSecretRef": {"name": "u", "key": "k"}, "networkData": "version: 2\n", "metaData": "instance-id: mine\n"},
}
DRIVE: Mapping[str, Any] = {
    "name": "drive",
    "type": "CloudInitConfigDrive",
    "source": {"userData": USER_DATA, "networkDataBase64": base64.b64encode(b'{"links": []}').decode()},
}
LAST: Mapping[str, Any] = {
    "name": "last",
    "type": "CloudInitConfigDrive",
    "source": {"metaDataSecretRef": {"name": "m"}},
}
FIXED: Mapping[str, Any] = {
    "name": "fixed",
    "type": "CloudInitNoCloud",
    "source": {"metaDataBase64": base64.b64encode(b"instance-id: theirs\n").decode()},
}
LABELS = 'app="db"\nrole="main"'
ITEMS = [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]
LONG = "a" * (cloud_init.MAX_FILE_NAME - 2) + ".d"


def a_machine_of(*disks: Mapping[str, Any]) -> messages.Machine:
    machine = a_machine(devices={**NO_GRAPHICS, "disks": [dict(each) for each in disks]})
    return dataclasses.replace(machine, access_credentials=(messages.AccessCredential("noCloud"), messages.AccessCredential("configDrive")))


def files(viewer: Viewer, device: str) -> dict[str, str]:
    viewer.sh(f"umount /tmp/cd; mkdir -p /tmp/cd; mount -t iso9660 -o ro /dev/{device} /tmp/cd")
    names = viewer.sh("cd /tmp/cd; find . -type f | sort; cd /").split()
    return {name.removeprefix("./"): viewer.sh(f"cat /tmp/cd/{name}") for name in names}


def label(viewer: Viewer, device: str) -> str:
    return viewer.sh(f"dd if=/dev/{device} bs=1 skip=32808 count=32 2>/dev/null")


def test_a_guest_reads_every_disk_that_is_made_for_it(start: Callable[[], Launcher]) -> None:
    pod = start()
    mount(pod.sources / "seed", {"networkData": b"version: 1\n"})
    mount(pod.sources / "other", {"userData": f"#cloud-config\npassword: {PASSWORD}\n".encode()})
    mount(pod.sources / "last", {"metaData": b'{"uuid": "mine"}'})
    mount(pod.sources / "answers", {"Autounattend.xml": b"<unattend/>", LONG: b"long", "empty": b""})
    mount(pod.sources / "config", {"config.ign": b"{}"})
    mount(pod.sources / "fields", {"labels": LABELS.encode()})
    mount(pod.sources / "account", {"token": b"e30.e30.c2ln", "ca.crt": b"-----BEGIN", "namespace": b"default"})
    mount(pod.access_credentials / "0", {"keys": f"# mine\n\n{KEY}\n".encode()})
    mount(pod.access_credentials / "1", {"keys": f"{KEY} of the drive".encode()})
    machine = a_machine_of(
        NO_CLOUD,
        OTHER,
        DRIVE,
        LAST,
        FIXED,
        {"name": "answers", "type": "Secret", "source": {"name": "s"}, "target": {"bus": "scsi"}},
        {"name": "config", "type": "ConfigMap", "device": "disk", "source": {"name": "c", "volumeLabel": "ignition"}, "readOnly": True},
        {"name": "fields", "type": "DownwardAPI", "device": "disk", "source": {"items": ITEMS, "volumeLabel": "fields"}},
        {"name": "account", "type": "ServiceAccount", "device": "disk", "source": {"name": "robot"}},
    )
    with pod.client() as client, pod.console() as viewer:
        status = client.ask(messages.Sync(machine))
        assert status.not_migratable == "the token on the disk 'account' belongs to its pod and expires with it"
        viewer.expect("GUEST-READY", seconds=150)
        drives = sorted(viewer.sh("cd /sys/block; echo sr*").split())
        labels = {label(viewer, each): each for each in drives}
        assert set(labels) == {"cidata", "cfgdata"}

        seed = files(viewer, labels["cidata"])
        assert (seed["user-data"], seed["network-config"]) == (USER_DATA.strip(), "version: 1")
        assert json.loads(seed["meta-data"]) == {"instance-id": machine.uid, "local-hostname": "testvm", "public-keys": [KEY]}
        assert files(viewer, labels["cfgdata"]) == {"Autounattend.xml": "<unattend/>", LONG: "long", "empty": ""}

        assert [label(viewer, each) for each in ("vda", "vdb", "vdc", "vdd", "vde", "vdf", "vdg")] == [
            "cidata",
            "config-2",
            "config-2",
            "cidata",
            "ignition",
            "fields",
            "cfgdata",
        ]
        other = {"user-data": f"#cloud-config\npassword: {PASSWORD}", "network-config": "version: 2", "meta-data": "instance-id: mine"}
        assert files(viewer, "vda") == other
        drive = files(viewer, "vdb")
        meta = json.loads(drive.pop("openstack/latest/meta_data.json"))
        named = {"uuid": machine.uid, "name": "testvm", "hostname": "testvm", "public_keys": {"0": f"{KEY} of the drive"}}
        assert meta == named
        assert drive == {"openstack/latest/user_data": USER_DATA.strip(), "openstack/latest/network_data.json": '{"links": []}'}
        assert files(viewer, "vdc") == {"openstack/latest/meta_data.json": '{"uuid": "mine"}'}
        assert files(viewer, "vdd") == {"user-data": "", "meta-data": "instance-id: theirs"}
        assert files(viewer, "vde") == {"config.ign": "{}"}
        assert files(viewer, "vdf") == {"labels": LABELS}
        assert files(viewer, "vdg") == {"token": "e30.e30.c2ln", "ca.crt": "-----BEGIN", "namespace": "default"}
        assert viewer.sh("cat /sys/block/vda/ro; echo x > /dev/vda") != "0"
        assert {each.name for each in pod.made.iterdir()} == {f"{disk['name']}.iso" for disk in machine.domain["devices"]["disks"]}
        assert {each.stat().st_mode & 0o777 for each in pod.made.iterdir()} == {0o600}
    assert PASSWORD not in pod.log.read_text()
    assert "ssh-ed25519" not in pod.log.read_text()
    assert "c2ln" not in pod.log.read_text()


def test_equal_content_gives_equal_images_and_errors_hide_it(start: Callable[[], Launcher]) -> None:
    images: list[bytes] = []
    for _ in range(2):
        pod = start()
        mount(pod.sources / "answers", {"b": b"2", "a": b"1"})
        mount(pod.access_credentials / "0", {"keys": KEY.encode()})
        mount(pod.access_credentials / "1", {"keys": b"\x00secret\x00"})
        machine = a_machine_of({"name": "answers", "type": "Secret", "source": {"name": "s"}}, {**NO_CLOUD, "source": {}}, DRIVE)
        with pod.client() as client:
            answer = client.call(messages.Sync(machine))
        assert isinstance(answer, messages.Refusal)
        assert "spec.accessCredentials[1]: line 1 of the value of 'keys' in its Secret is not a public key" in answer.message
        assert "secret" not in answer.message
        images += [(pod.made / f"{each}.iso").read_bytes() for each in ("answers", "seed")]
        assert files_of(pod.made / "answers.iso") == ["'/a'", "'/b'"]
    assert images[:2] == images[2:]


def test_maximum_files_and_names_fit_the_counted_room(start: Callable[[], Launcher]) -> None:
    pod = start()
    size = cloud_init.MAX_VALUES // cloud_init.MAX_FILES
    names = [f"{number:03}{'n' * (cloud_init.MAX_FILE_NAME - 3)}" for number in range(cloud_init.MAX_FILES)]
    mount(pod.sources / "answers", {name: bytes(size) for name in names})
    mount(pod.access_credentials / "1", {"keys": b"\xff"})
    machine = a_machine_of({"name": "answers", "type": "Secret", "source": {"name": "s"}}, DRIVE)
    with pod.client() as client:
        client.call(messages.Sync(machine))
    image = pod.made / "answers.iso"
    assert len(files_of(image)) == cloud_init.MAX_FILES
    taken = made_bytes({"devices": {"disks": [{"type": "Secret", "source": {"name": "s"}}]}})
    assert image.stat().st_size + cloud_init.MAX_VALUES + 4096 * cloud_init.MAX_FILES <= taken


def files_of(image: Path) -> list[str]:
    command = ["xorriso", "-no_rc", "-indev", str(image), "-find", "/", "-type", "f"]
    return sorted(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())
