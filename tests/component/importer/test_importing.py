from __future__ import annotations

import gzip
import hashlib
import json
import lzma
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.virt.hardware import disk_imports
from importer import __main__ as importer
from importer import claim, conversion
from importer import device as blocks
from importer.reporting import Reporter
from tests.fakes.image_server import Files, a_layer, a_registry, a_store, authority_of, certificate, digest_of, serving

MIB = 1 << 20
BOOT_SECTOR = b"boot".ljust(510, b"\0") + b"\x55\xaa"
IMAGE = BOOT_SECTOR + bytes(MIB - 508) + random.Random(1).randbytes(2 * MIB) + bytes(MIB) + b"end" + bytes(4089)
ROOT = Path(__file__).parents[3]

CLOSED_AT_EXIT = pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning")
"""The importer leaves connections to the end of its process."""
pytestmark = [pytest.mark.timeout(300), CLOSED_AT_EXIT]
NEEDS_QEMU_IMG = pytest.mark.host


@pytest.fixture
def files() -> Files:
    return Files({"/disk.img": IMAGE})


@pytest.fixture
def url(files: Files) -> Iterator[str]:
    with serving(files) as served:
        yield served


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    path = tmp_path / "claim"
    path.mkdir()
    return path


def start(volume: Path, source: dict[str, Any], **more: Any) -> subprocess.Popen[bytes]:
    plan = {"directory": str(volume), "source": source, **more}
    process = subprocess.Popen([sys.executable, "-m", "importer"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(json.dumps(plan).encode())
    process.stdin.close()
    process.stdin = None
    return process


def run_as_process(volume: Path, source: dict[str, Any], **more: Any) -> str:
    process = start(volume, source, **more)
    try:
        output, _ = process.communicate(timeout=240)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return told(volume, output, process.returncode)


def run(volume: Path, source: dict[str, Any], **more: Any) -> str:
    """Import in this process: a process of its own takes a fifth of a second of processor time."""
    plan = {"directory": str(volume), "source": source, **more}
    with tempfile.TemporaryFile() as output:
        code = importer.carry_out(json.dumps(plan).encode(), Reporter(output.fileno()))
        output.seek(0)
        return told(volume, output.read(), code)


def told(volume: Path, output: bytes, code: int) -> str:
    last = json.loads(output.splitlines()[-1])
    assert (code == 0) == (last["result"] == "Succeeded")
    assert code in (0, 1)
    if code:
        assert not any(path.name.startswith(claim.PARTIAL) for path in volume.iterdir())
    return str(last.get("message", ""))


def disk(volume: Path) -> bytes:
    assert [path.name for path in volume.iterdir()] == [claim.IMAGE]
    return (volume / claim.IMAGE).read_bytes()


def qcow2(tmp_path: Path, *options: str, data: bytes = IMAGE) -> bytes:
    raw, image = tmp_path / "raw", tmp_path / "image.qcow2"
    raw.write_bytes(data)
    subprocess.run(["qemu-img", "convert", "-f", "raw", "-O", "qcow2", *options, raw, image], check=True)
    return image.read_bytes()


def test_raw_image_becomes_a_sparse_disk(volume: Path, url: str) -> None:
    assert (
        run_as_process(volume, {"http": {"url": f"{url}/disk.img?signature=1"}, "checksum": f"sha256:{hashlib.sha256(IMAGE).hexdigest()}"})
        == ""
    )
    assert disk(volume) == IMAGE
    assert (volume / claim.IMAGE).stat().st_blocks * 512 < len(IMAGE) - MIB


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress])
def test_compressed_image_is_decompressed(volume: Path, url: str, files: Files, compress: Any) -> None:
    files.content["/disk.img"] = packed = compress(IMAGE)

    assert run(volume, {"http": {"url": f"{url}/disk.img"}, "checksum": f"sha512:{hashlib.sha512(packed).hexdigest()}"}) == ""
    assert disk(volume) == IMAGE


@NEEDS_QEMU_IMG
@pytest.mark.parametrize("options", [(), ("-c",), ("-o", "compat=0.10"), ("-o", "extended_l2=on")])
def test_a_qcow2_image_is_converted(volume: Path, url: str, files: Files, tmp_path: Path, options: tuple[str, ...]) -> None:
    files.content["/a.qcow2.gz"] = gzip.compress(qcow2(tmp_path, *options))

    assert run(volume, {"http": {"url": f"{url}/a.qcow2.gz"}}) == ""
    assert disk(volume) == IMAGE


def test_disk_grows_to_the_requested_size_in_whole_blocks(volume: Path, url: str, files: Files) -> None:
    assert run(volume, {"http": {"url": f"{url}/disk.img"}}, size=8 * MIB) == ""
    assert disk(volume) == IMAGE.ljust(8 * MIB, b"\0")
    (volume / claim.IMAGE).unlink()
    files.content["/odd"] = b"\1" * 513
    assert run(volume, {"http": {"url": f"{url}/odd"}, "format": "raw"}) == ""
    assert disk(volume) == (b"\1" * 513).ljust(claim.BLOCK, b"\0")


def test_a_disk_that_is_there_is_never_touched(volume: Path, url: str, files: Files) -> None:
    (volume / claim.IMAGE).write_bytes(b"a guest's")

    assert run(volume, {"http": {"url": f"{url}/disk.img"}}) == ""
    assert disk(volume) == b"a guest's"
    assert not files.asked


def test_a_disk_that_comes_meanwhile_is_never_touched(volume: Path, url: str, files: Files) -> None:
    files.hang = threading.Event()
    process = start(volume, {"http": {"url": f"{url}/disk.img"}})
    wait_for(volume / claim.PARTIAL)
    (volume / claim.IMAGE).write_bytes(b"a guest's")
    files.hang.set()
    files.hang = None
    process.communicate(timeout=240)

    assert process.returncode == 0
    assert disk(volume) == b"a guest's"


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists() or not path.stat().st_size:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_second_import_is_refused_and_a_killed_one_restarts(volume: Path, url: str, files: Files) -> None:
    files.hang = threading.Event()
    process = start(volume, {"http": {"url": f"{url}/disk.img"}})
    wait_for(volume / claim.PARTIAL)
    second = start(volume, {"http": {"url": f"{url}/disk.img"}})
    output, _ = second.communicate(timeout=240)
    assert "another import" in output.decode()

    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    files.hang.set()
    files.hang = None
    assert (volume / claim.PARTIAL).exists()
    assert not (volume / claim.IMAGE).exists()
    assert run(volume, {"http": {"url": f"{url}/disk.img"}}) == ""
    assert disk(volume) == IMAGE


def test_a_connection_that_breaks_is_resumed_where_it_was(volume: Path, url: str, files: Files) -> None:
    files.cuts = 3

    assert run(volume, {"http": {"url": f"{url}/disk.img"}, "checksum": f"sha256:{hashlib.sha256(IMAGE).hexdigest()}"}) == ""
    assert disk(volume) == IMAGE
    assert [headers.get("Range") for _, headers in files.asked] == [None, *(f"bytes={each << 18}-" for each in (1, 2, 3))]


@pytest.mark.parametrize("chunked", [False, True])
def test_unresumable_download_is_reported(volume: Path, url: str, files: Files, *, chunked: bool) -> None:
    files.cuts, files.tag, files.chunked = 1, "", chunked

    assert "/disk.img: " in (message := run(volume, {"http": {"url": f"{url}/disk.img"}}))
    assert f"after {1 << 18} of" in message


def test_a_server_that_resumes_another_file_is_not_believed(volume: Path, url: str, files: Files) -> None:
    files.cuts, files.ranges = 1, False

    assert "does not support resuming" in run(volume, {"http": {"url": f"{url}/disk.img"}})


@pytest.mark.parametrize("skew", [(1, 0), (-1, 0), (0, 1)])
def test_a_server_that_goes_on_elsewhere_is_not_believed(volume: Path, url: str, files: Files, skew: tuple[int, int]) -> None:
    files.cuts, files.skew = 1, skew

    assert "does not support resuming" in run(volume, {"http": {"url": f"{url}/disk.img"}})


def test_more_than_a_server_said_is_told(volume: Path, url: str, files: Files) -> None:
    files.cuts, files.surplus = 1, b"more"

    assert "sent more data than announced" in run(volume, {"http": {"url": f"{url}/disk.img"}})


def test_a_weak_tag_is_none_by_which_a_file_is_known_again(volume: Path, url: str, files: Files) -> None:
    files.cuts, files.tag = 1, 'W/"one"'

    assert f"after {1 << 18} of" in run(volume, {"http": {"url": f"{url}/disk.img"}})


def test_an_answer_in_chunks_is_whole_when_the_last_one_came(volume: Path, url: str, files: Files) -> None:
    files.chunked = True
    assert run(volume, {"http": {"url": f"{url}/disk.img"}}) == ""
    assert disk(volume) == IMAGE


def test_an_answer_of_unknown_length_is_not_believed_to_be_whole(volume: Path, url: str, files: Files) -> None:
    files.length = False
    files.content["/two.gz"] = gzip.compress(IMAGE) + gzip.compress(IMAGE)
    files.content["/cut.gz"] = gzip.compress(IMAGE)[:-9]

    for name in ("disk.img", "two.gz", "cut.gz"):
        assert "set import.checksum to verify that the file is complete" in run(volume, {"http": {"url": f"{url}/{name}"}})


def test_answer_of_unknown_length_needs_a_checksum_or_format(volume: Path, url: str, files: Files) -> None:
    files.length = False
    source = {"http": {"url": f"{url}/disk.img"}, "checksum": f"sha256:{hashlib.sha256(IMAGE).hexdigest()}"}
    assert run(volume, source) == ""
    assert disk(volume) == IMAGE

    files.cuts = 1
    (volume / claim.IMAGE).unlink()
    assert run(volume, source).startswith("checksum mismatch")
    files.content["/disk.img.xz"] = lzma.compress(IMAGE)
    assert run(volume, {"http": {"url": f"{url}/disk.img.xz"}}) == ""
    assert disk(volume) == IMAGE


@NEEDS_QEMU_IMG
@pytest.mark.parametrize(
    "options",
    [(), ("-c",), ("-o", "compat=0.10"), ("-o", "extended_l2=on"), ("-c", "-o", "compression_type=zstd"), ("-o", "cluster_size=4k")],
)
def test_a_qcow2_image_of_unknown_length_proves_its_end(
    volume: Path, url: str, files: Files, tmp_path: Path, options: tuple[str, ...]
) -> None:
    files.length = False
    whole = files.content["/a.qcow2"] = qcow2(tmp_path, *options)
    source = {"http": {"url": f"{url}/a.qcow2"}}
    assert run(volume, source) == ""
    assert disk(volume) == IMAGE

    (volume / claim.IMAGE).unlink()
    for cut in (1, 512, 1 << 16, len(whole) // 2):
        files.content["/a.qcow2"] = whole[:-cut]
        assert "set import.checksum to verify that the file is complete" in run(volume, source), cut


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n", "it is a Git LFS pointer"),
        (b"404 page not found\n", 'begins with "404 page not found'),
        (b"<!-- made by a proxy -->\n<html></html>", "it is an HTML page"),
        (bytes(range(1, 256)) * 400, "is neither qcow2 nor a raw disk"),
    ],
    ids=["a pointer", "a text", "an HTML page", "bytes"],
)
def test_non_disk_is_refused_by_its_first_bytes_unless_raw(volume: Path, url: str, files: Files, data: bytes, words: str) -> None:
    files.content["/x"] = data
    message = run(volume, {"http": {"url": f"{url}/x"}})
    assert words in message
    assert "set format: raw" in message
    assert not list(volume.iterdir())

    assert run(volume, {"http": {"url": f"{url}/x"}, "format": "raw"}) == ""
    assert disk(volume).startswith(data)


def test_an_image_is_of_the_format_that_the_user_says(volume: Path, url: str) -> None:
    assert run(volume, {"http": {"url": f"{url}/disk.img"}, "format": "qcow2"}).startswith(
        'format is qcow2, but the downloaded file begins with "boot'
    )


def test_an_encoding_that_was_not_asked_for_is_told(volume: Path, url: str, files: Files) -> None:
    files.encoding = "deflate"
    assert "Content-Encoding: deflate, which is not supported" in run(volume, {"http": {"url": f"{url}/disk.img"}})
    files.encoding, files.content["/disk.img"] = "gzip", gzip.compress(IMAGE)
    assert run(volume, {"http": {"url": f"{url}/disk.img"}}) == ""
    assert disk(volume) == IMAGE


def test_a_redirect_with_a_space_is_followed(volume: Path, url: str, files: Files) -> None:
    files.redirects = {"/old": "/files/my image.img"}
    files.content["/files/my%20image.img"] = IMAGE
    assert run(volume, {"http": {"url": f"{url}/old"}}) == ""
    assert disk(volume) == IMAGE


def test_a_wrong_checksum_is_told(volume: Path, url: str) -> None:
    message = run(volume, {"http": {"url": f"{url}/disk.img"}, "checksum": f"sha256:{'0' * 64}"})

    assert message.endswith(f"sha256:{hashlib.sha256(IMAGE).hexdigest()}")


@NEEDS_QEMU_IMG
def test_wrong_checksum_of_a_converted_image_is_reported(volume: Path, url: str, files: Files, tmp_path: Path) -> None:
    files.content["/a.qcow2"] = qcow2(tmp_path)
    message = run(volume, {"http": {"url": f"{url}/a.qcow2"}, "checksum": f"sha256:{'0' * 64}"})

    assert "checksum mismatch" in message
    assert not list(volume.iterdir())


@NEEDS_QEMU_IMG
def test_importer_and_qemu_img_have_memory_and_size_limits(volume: Path, url: str, files: Files, tmp_path: Path) -> None:
    program, told = tmp_path / "qemu-img", tmp_path / "limits"
    program.write_text(f"#!/bin/sh\ncat /proc/$PPID/limits /proc/self/limits >{told}\nexit 1\n")
    program.chmod(0o755)
    files.content["/a.qcow2"] = qcow2(tmp_path)
    assert "qemu-img could not convert the image" in run_as_process(volume, {"http": {"url": f"{url}/a.qcow2"}}, qemuImg=str(program))
    limits = [line.split()[-3:-1] for line in told.read_text().splitlines() if line.startswith(("Max address space", "Max core file size"))]
    assert limits == [["0", "0"], [str(1 << 30)] * 2] * 2
    (size,) = [line.split()[-3:-1] for line in told.read_text().splitlines() if line.startswith("Max file size")][1:]
    assert size == [str(len(IMAGE))] * 2


@NEEDS_QEMU_IMG
def test_qemu_img_follows_no_file_name_in_an_image(tmp_path: Path) -> None:
    secret, image, disk_image = tmp_path / "secret", tmp_path / "image.qcow2", tmp_path / "disk.img"
    secret.write_bytes(b"somebody's".ljust(MIB, b"!"))
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", "-b", secret, "-F", "raw", image, "1M"], check=True)
    disk_image.touch()
    conversion.convert("/usr/bin/qemu-img", image, disk_image, MIB)
    assert not any(disk_image.read_bytes())


@pytest.mark.parametrize(
    ("status", "words"), [(404, ("file not found")), (401, "secretRef"), (403, "403"), (500, "returned 500"), (503, "503")]
)
def test_refusal_is_reported_with_the_address_without_query(volume: Path, url: str, files: Files, status: int, words: str) -> None:
    files.statuses = [status]
    message = run(volume, {"http": {"url": f"{url}/disk.img?X-Amz-Signature=secret"}})

    assert words in message
    assert f"{url}/disk.img " in message
    assert "secret=" not in message
    assert "Signature" not in message


def test_unreachable_server_is_reported(volume: Path) -> None:
    assert run(volume, {"http": {"url": "http://127.0.0.1:1/disk.img"}}) == "http://127.0.0.1:1/disk.img: Connection refused"


def test_redirects_are_limited_and_drop_credentials(volume: Path, url: str, files: Files, tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "username").write_text("user\n")
    (tmp_path / "secret" / "password").write_text("pass")
    files.redirects = {"/loop": "/loop"}
    assert "redirects" in run(volume, {"http": {"url": f"{url}/loop"}})
    files.authorization = "Basic dXNlcjpwYXNz"
    assert "401" in run(volume, {"http": {"url": f"{url}/disk.img"}})
    other = Files({"/x": IMAGE})
    with serving(other) as elsewhere:
        files.redirects = {"/disk.img": f"{elsewhere}/x"}
        assert run(volume, {"http": {"url": f"{url}/disk.img"}}, secret=str(tmp_path / "secret")) == ""
    assert disk(volume) == IMAGE
    assert [headers.get("Authorization") for _, headers in other.asked] == [None]


def test_a_token_is_sent_and_a_secret_without_any_is_told(volume: Path, url: str, files: Files, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    files.authorization = "Bearer abc"
    assert "needs username" in run(volume, {"http": {"url": f"{url}/disk.img"}}, secret=str(secret))
    (secret / "token").write_text("a\nb")
    message = run(volume, {"http": {"url": f"{url}/disk.img"}}, secret=str(secret))
    assert message == "the value of the key token of the Secret is too long, or has control characters"
    (secret / "token").write_text("abc\n")
    assert run(volume, {"http": {"url": f"{url}/disk.img"}}, secret=str(secret)) == ""


def test_a_server_is_verified_by_the_authority_that_is_given(volume: Path, files: Files, tmp_path: Path) -> None:
    pair = certificate(tmp_path / "pair.pem")
    authority = tmp_path / "ca.crt"
    authority.write_bytes(authority_of(pair))
    files.redirects = {"/down": "http://127.0.0.1:1/disk.img"}
    with serving(files, pair) as url:
        assert "is not trusted" in run(volume, {"http": {"url": f"{url}/disk.img"}})
        (tmp_path / "none").write_text("none")
        assert "PEM" in run(volume, {"http": {"url": f"{url}/disk.img"}}, authorities=str(tmp_path / "none"))
        assert "not encrypted" in run(volume, {"http": {"url": f"{url}/down"}}, authorities=str(authority))
        assert run(volume, {"http": {"url": f"{url}/disk.img"}}, authorities=str(authority)) == ""
    assert disk(volume) == IMAGE


@NEEDS_QEMU_IMG
def test_hostile_images_are_refused(volume: Path, url: str, files: Files, tmp_path: Path) -> None:
    plain = qcow2(tmp_path)
    backed, external = tmp_path / "backed.qcow2", tmp_path / "external.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", "-u", "-b", "/etc/passwd", "-F", "raw", backed, "1M"], check=True)
    subprocess.run(
        ["qemu-img", "create", "-q", "-f", "qcow2", "-o", f"data_file={tmp_path}/data,data_file_raw=on", external, "1M"], check=True
    )
    huge = bytearray(plain)
    huge[24:32] = (1 << 62).to_bytes(8, "big")
    looping = bytearray(plain)
    looping[40:48] = (1).to_bytes(8, "big")
    cases = {
        "backing file": backed.read_bytes(),
        "external data file": external.read_bytes(),
        "holds a disk of": bytes(huge),
        "qemu-img": bytes(looping),
        "empty": b"",
        "compressed twice": gzip.compress(gzip.compress(IMAGE)),
        "VMDK": b"KDMV" + bytes(5000),
        "an HTML page": b"<html>" + bytes(5000),
        "size is 1048576": plain,
    }
    for words, data in cases.items():
        files.content["/x"] = data
        more = {"size": MIB} if words.startswith("size") else {}
        assert words in run_as_process(volume, {"http": {"url": f"{url}/x"}}, **more), words
        assert not list(volume.iterdir())


def test_a_bomb_ends_at_the_size_of_the_disk(volume: Path, url: str, files: Files) -> None:
    bomb = gzip.compress(bytes(256 * MIB), 1)
    files.content["/bomb"] = gzip.compress(bomb)
    assert "compressed twice" in run_as_process(volume, {"http": {"url": f"{url}/bomb"}})
    files.content["/bomb"] = bomb

    assert "holds more than" in run_as_process(volume, {"http": {"url": f"{url}/bomb"}}, size=4 * MIB)
    assert not list(volume.iterdir())


def test_object_store_verifies_the_signature(volume: Path, url: str, files: Files, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    files.content["/store/images/a%20b/disk.img"] = IMAGE
    files.verify = a_store("hidden", "eu-1", url.removeprefix("http://"))
    source = {"s3": {"endpoint": f"{url}/store/", "bucket": "images", "key": "a b/disk.img", "region": "eu-1"}}
    assert "returned 403" in run(volume, source)
    assert "needs both accessKeyId and secretKey" in run(volume, source, secret=str(secret))
    (secret / "accessKeyId").write_text("id\n")
    (secret / "secretKey").write_text("wrong")
    assert "returned 403" in run(volume, source, secret=str(secret))
    (secret / "secretKey").write_text("hidden")
    files.cuts = 1
    assert run(volume, source, secret=str(secret)) == ""
    assert disk(volume) == IMAGE


def test_signature_is_not_sent_to_redirected_stores(volume: Path, url: str, files: Files, tmp_path: Path) -> None:
    for key in ("accessKeyId", "secretKey", "sessionToken"):
        (tmp_path / key).write_text("id")
    other = Files({"/x": IMAGE})
    with serving(other) as elsewhere:
        files.redirects = {"/images/disk.img": f"{elsewhere}/x"}
        assert run(volume, {"s3": {"endpoint": url, "bucket": "images", "key": "disk.img"}}, secret=str(tmp_path)) == ""
    ((_, headers),) = other.asked
    assert not {each.lower() for each in headers} & {"authorization", "x-amz-security-token"}
    assert "x-amz-security-token" in {each.lower() for _, headers in files.asked for each in headers}


def test_registry_image_is_read_with_a_token_and_verified(volume: Path, tmp_path: Path) -> None:
    layer = a_layer({"./disk/a.img": IMAGE})
    files = a_registry("disks/a", layer, a_layer({"other/disk/b.img": b"x"}))
    pair = certificate(tmp_path / "pair.pem")
    (tmp_path / "ca.crt").write_bytes(authority_of(pair))
    secret = tmp_path / "secret"
    secret.mkdir()
    with serving(files, pair) as url:
        host = url.removeprefix("https://")
        files.challenge = f'Bearer realm="{url}/token",service="s"'
        source = {"registry": {"reference": f"{host}/disks/a:1"}}
        more = {"secret": str(secret), "authorities": str(tmp_path / "ca.crt")}
        assert "401" in run(volume, source, authorities=more["authorities"])
        assert f"or .dockerconfigjson with an entry for {host}" in run(volume, source, **more)
        (secret / "username").write_text("user")
        (secret / "password").write_text("pass")
        blob = f"/v2/disks/a/blobs/{digest_of(layer)}"
        for data in (a_layer({"disk/a.img": b"other"}), b"none"):
            files.content[blob] = data
            assert "another layer" in run(volume, source, **more)
        files.content[blob] = layer
        assert "file not found" in run(volume, {"registry": {"reference": f"{host}/disks/a:2"}}, **more)
        assert run(volume, {**source, "checksum": f"sha256:{hashlib.sha256(IMAGE).hexdigest()}"}, **more) == ""
    assert disk(volume) == IMAGE


@pytest.fixture
def device(tmp_path: Path) -> Path:
    path = tmp_path / "device"
    path.write_bytes(bytes(MIB) + b"former" * (7 * MIB // 6) + bytes(4))
    return path


def on_device(device: Path, source: dict[str, Any], **more: Any) -> str:
    return run(device.parent, source, device=str(device), **more)


def test_block_device_gets_the_image_with_zeros(device: Path, url: str, files: Files) -> None:
    size = device.stat().st_size
    behind = device.read_bytes()[len(IMAGE) :]
    files.content["/disk.img.gz"] = gzip.compress(IMAGE)
    assert on_device(device, {"http": {"url": f"{url}/disk.img.gz"}}) == ""
    assert device.read_bytes() == IMAGE + behind
    assert device.stat().st_size == size

    files.content["/disk.img.gz"] = b"another"
    assert on_device(device, {"http": {"url": f"{url}/disk.img.gz"}}) == ""
    assert device.read_bytes() == IMAGE + behind
    assert len(files.asked) == 1


def test_an_import_into_a_device_that_did_not_end_is_done_again(device: Path, url: str, files: Files) -> None:
    failed = on_device(device, {"http": {"url": f"{url}/disk.img"}, "checksum": f"sha256:{'0' * 64}"})
    assert failed.startswith("checksum mismatch")
    with device.open("rb") as opened:
        assert disk_imports.is_due(opened.read(disk_imports.HEAD_BYTES))
    assert on_device(device, {"http": {"url": f"{url}/disk.img"}}) == ""
    assert device.read_bytes().startswith(IMAGE)


@pytest.mark.parametrize(
    ("image", "more", "why"),
    [
        (bytes(2 * MIB) + b"end", {}, "begins with 1 MiB of zeros"),
        (blocks.UNFINISHED.ljust(0x8001, b"\0") + b"CD001", {}, "begins with 1 MiB of zeros"),
        (b"QFI\xfb" + bytes(MIB), {}, "convert qcow2"),
        (BOOT_SECTOR + b"a" * (8 * MIB + 1), {}, "holds more than 8388608 bytes"),
        (BOOT_SECTOR + b"a" * MIB, {"size": 9 * MIB}, "size is 9437184 bytes, but the claim has only 8388608"),
        (b"", {}, "is empty"),
    ],
    ids=["zeros", "the mark", "qcow2", "too large", "a size that is", "nothing"],
)
def test_image_that_a_device_cannot_hold_is_refused(
    device: Path, url: str, files: Files, image: bytes, more: dict[str, Any], why: str
) -> None:
    files.content["/disk.img"] = image
    assert why in on_device(device, {"http": {"url": f"{url}/disk.img"}}, **more)
    assert not blocks.has_disk(device)


def test_both_sides_know_the_same_mark() -> None:
    assert (disk_imports.HEAD_BYTES, disk_imports.UNFINISHED) == (blocks.HEAD_BYTES, blocks.UNFINISHED)
    for head in (b"", bytes(MIB), blocks.UNFINISHED, b"\0" * 600 + b"x", b"x"):
        assert disk_imports.is_due(head) == (not any(head) or head.startswith(blocks.UNFINISHED))
