from __future__ import annotations

import gzip
import hashlib
import json
import os
import stat
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.virt.places import layout
from launcher.protocol import messages
from tests.damage import never_again
from tests.fakes.image_server import Files, a_layer, a_registry, a_store, authority_of, certificate, serving
from tests.host.launcher.sandbox import Launcher, a_machine

pytestmark = pytest.mark.host

MIB = 1 << 20


def a_qcow2_image(directory: Path, content: str) -> bytes:
    raw, image = directory / "raw", directory / "image.qcow2"
    raw.write_bytes(content.encode().ljust(2 * MIB, b"\0"))
    subprocess.run(["qemu-img", "convert", "-f", "raw", "-O", "qcow2", raw, image], check=True)
    return image.read_bytes()


def progress(status: messages.Status) -> dict[str, str]:
    return {each.disk: each.phase for each in status.imports}


@pytest.mark.timeout(300)
def test_a_guest_starts_from_an_image_that_was_imported(start: Callable[[], Launcher], tmp_path: Path) -> None:
    pod = start()
    data = gzip.compress(a_qcow2_image(tmp_path, "from-the-server"))
    files = Files({"/a.qcow2.gz": data}, authorization="Basic dXNlcjpwYXNz", statuses=[503])
    pair = certificate(tmp_path / "pair.pem")
    claim, secret, authorities = (each / "root" for each in (pod.disks, pod.import_secrets, pod.import_authorities))
    for path in (claim, secret, authorities):
        path.mkdir()
    (secret / "username").write_text("user")
    (secret / "password").write_text("pass\n")
    (authorities / "ca.crt").write_bytes(authority_of(pair))
    subprocess.run(["chown", "-R", "107:107", pod.disks], check=True)
    with serving(files, pair) as url, pod.client() as client, pod.console() as viewer:
        given = {
            "http": {"url": f"{url}/a.qcow2.gz?signature=s", "secretRef": {"name": "s"}, "caConfigMapRef": {"name": "c", "key": "k"}},
            "checksum": f"sha256:{hashlib.sha256(data).hexdigest()}",
            "size": "4Mi",
        }
        source = {"name": "c", "import": given}
        machine = a_machine(
            devices={"disks": [{"name": "root", "type": "PersistentVolumeClaim", "source": source}], "graphics": [], "interfaces": []}
        )
        answer = client.call(messages.Import(machine))
        assert isinstance(answer, messages.Refusal)
        assert (answer.reason, answer.disks) == ("NotReady", ("root",))
        retrying = client.until(lambda status: progress(status) == {"root": "Retrying"}, 120).imports[0]
        assert retrying.message == f"{url}/a.qcow2.gz returned 503"
        assert retrying.failures == 1
        done = client.until(lambda status: progress(status) == {"root": "Succeeded"}, 120).imports[0]
        assert (done.transferred_bytes, done.total_bytes, done.message) == (len(data), len(data), "")
        assert [path.name for path in claim.iterdir()] == [layout.DISK_IMAGE]
        assert (claim / layout.DISK_IMAGE).stat().st_uid == layout.USER_ID
        client.ask(messages.Import(machine))
        client.ask(messages.Sync(machine))
        viewer.expect("GUEST-READY", 120)
        with never_again("wrong bytes"):
            assert viewer.sh("head -c 15 /dev/vda; cat /sys/block/vda/size") == f"from-the-server{4 << 11}"
        viewer.sh("echo written-over-it | dd of=/dev/vda conv=fsync")
    with never_again("a lost write"):
        assert (claim / layout.DISK_IMAGE).read_bytes().startswith(b"written-over-it")

    again = start()
    claim.rename(again.disks / "root")
    with again.client() as client:
        assert client.ask(messages.Import(machine)).imports == ()
    with never_again("a lost write"):
        assert (again.disks / "root" / layout.DISK_IMAGE).read_bytes().startswith(b"written-over-it")
    assert len(files.asked) == 2


def put_secrets(pod: Launcher, disk: str, authority: bytes, secrets: Mapping[str, str]) -> None:
    claim, secret, authorities = (each / disk for each in (pod.disks, pod.import_secrets, pod.import_authorities))
    for path in (claim, secret, authorities):
        path.mkdir()
    for name, content in secrets.items():
        (secret / name).write_text(content)
    (authorities / "ca.crt").write_bytes(authority)
    subprocess.run(["chown", "-R", "107:107", pod.disks], check=True)


def a_disk(name: str, **source: Any) -> dict[str, Any]:
    of_all = {"secretRef": {"name": "s"}, "caConfigMapRef": {"name": "c", "key": "k"}}
    given = {kind: {**fields, **of_all} for kind, fields in source.items()}
    return {"name": name, "type": "PersistentVolumeClaim", "source": {"name": "c", "import": {**given, "format": "raw"}}}


@pytest.mark.timeout(300)
def test_a_guest_reads_images_of_a_store_and_a_registry(start: Callable[[], Launcher], tmp_path: Path) -> None:
    pod = start()
    pair = certificate(tmp_path / "pair.pem")
    objects = Files({"/images/disk.img": b"from-the-store".ljust(MIB, b"\0")})
    layers = a_registry("disks/data", a_layer({"etc/passwd": b"x", "disk/a.img": b"from-the-registry".ljust(MIB, b"\0")}), a_layer({}))
    with serving(objects, pair) as store, serving(layers, pair) as registry, pod.client() as client, pod.console() as viewer:
        objects.verify = a_store("hidden", "eu-1", store.removeprefix("https://"))
        put_secrets(pod, "store", authority_of(pair), {"accessKeyId": "id", "secretKey": "hidden"})
        layers.challenge = f'Bearer realm="{registry}/token",service="s",scope="repository:disks/data:pull"'
        host = registry.removeprefix("https://")
        login = json.dumps({"auths": {host: {"auth": "dXNlcjpwYXNz"}}})
        put_secrets(pod, "registry", authority_of(pair), {".dockerconfigjson": login})
        disks = [
            a_disk("store", s3={"endpoint": store, "bucket": "images", "key": "disk.img", "region": "eu-1"}),
            a_disk("registry", registry={"reference": f"{host}/disks/data:1"}),
        ]
        machine = a_machine(devices={"disks": disks, "graphics": [], "interfaces": []})
        client.call(messages.Import(machine))
        client.until(lambda status: progress(status) == {"store": "Succeeded", "registry": "Succeeded"}, 120)
        client.ask(messages.Sync(machine))
        viewer.expect("GUEST-READY", 120)
        with never_again("wrong bytes"):
            assert viewer.sh("head -c 14 /dev/vda; head -c 17 /dev/vdb") == "from-the-storefrom-the-registry"


@pytest.mark.timeout(300)
def test_guest_boots_from_an_imported_block_device(start: Callable[[], Launcher], tmp_path: Path) -> None:
    backing = tmp_path / "backing"
    backing.write_bytes(bytes(MIB) + b"of-the-one-before" * (3 * MIB // 17))
    os.truncate(backing, 4 * MIB)
    image = b"from-the-server".ljust(MIB, b"x") + bytes(MIB) + b"end".ljust(4096, b"\0")
    files = Files({"/a.img.gz": gzip.compress(image)})
    loop = subprocess.run(["losetup", "--find", "--show", backing], check=True, capture_output=True, text=True).stdout.strip()
    try:
        with serving(files) as url:
            source = {"name": "c", "import": {"format": "raw", "http": {"url": f"{url}/a.img.gz"}}}
            disk = {"name": "root", "type": "PersistentVolumeClaim", "source": source}
            machine = a_machine(devices={"disks": [disk], "graphics": [], "interfaces": []})
            pod = with_device(start(), loop)
            with pod.client() as client, pod.console() as viewer:
                assert isinstance(client.call(messages.Import(machine)), messages.Refusal)
                client.until(lambda status: progress(status) == {"root": "Succeeded"}, 120)
                client.ask(messages.Sync(machine))
                viewer.expect("GUEST-READY", 120)
                digest = hashlib.sha256(image).hexdigest()
                with never_again("wrong bytes"):
                    assert viewer.sh("head -c 15 /dev/vda; cat /sys/block/vda/size") == f"from-the-server{4 << 11}"
                    assert digest in viewer.sh(f"head -c {len(image)} /dev/vda | sha256sum")
                viewer.sh("echo written-over-it | dd of=/dev/vda conv=fsync")
                os.truncate(backing, 6 * MIB)
                subprocess.run(["losetup", "--set-capacity", loop], check=True)
                viewer.sh(f"n=0; while test $(cat /sys/block/vda/size) = {4 << 11} -a $n -lt 60; do sleep 1; n=$((n+1)); done")
                assert viewer.sh("cat /sys/block/vda/size") == str(6 << 11)
            again = with_device(start(), loop)
            with again.client() as client:
                assert client.ask(messages.Import(machine)).imports == ()
            assert len(files.asked) == 1
        with Path(loop).open("rb") as device, never_again("a lost write"):
            assert device.read(15) == b"written-over-it"
    finally:
        subprocess.run(["losetup", "--detach", loop], check=True)


def with_device(pod: Launcher, loop: str) -> Launcher:
    node = pod.devices / "root"
    os.mknod(node, 0o600 | stat.S_IFBLK, Path(loop).stat().st_rdev)
    os.chown(node, layout.USER_ID, layout.USER_ID)
    return pod
