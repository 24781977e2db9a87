from __future__ import annotations

import contextlib
import gzip
import io
import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.component.importer.test_importing import CLOSED_AT_EXIT, IMAGE, disk, run
from tests.fakes import zstd
from tests.fakes.image_server import Files, a_layer, a_registry, authority_of, certificate, digest_of, serving

LAYER = a_layer({"disk/a.img": IMAGE})
LOGIN = "Basic dXNlcjpwYXNz"

pytestmark = [pytest.mark.timeout(300), CLOSED_AT_EXIT]


@dataclass
class Here:
    path: Path

    @property
    def volume(self) -> Path:
        return self.path / "claim"

    @property
    def pair(self) -> Path:
        return self.path / "pair.pem"

    @contextlib.contextmanager
    def registry(self, files: Files, realm: str = "") -> Iterator[str]:
        with serving(files, self.pair) as url:
            files.challenge = f'Bearer realm="{realm or url}/token"'
            yield url

    def run(self, url: str, version: str = ":1") -> str:
        reference = f"{url.removeprefix('https://')}/disks/a{version}"
        more = {"secret": str(self.path / "secret"), "authorities": str(self.path / "ca.crt")}
        return run(self.volume, {"registry": {"reference": reference}}, **more)


@pytest.fixture
def here(tmp_path: Path) -> Here:
    found = Here(tmp_path)
    found.volume.mkdir()
    (tmp_path / "ca.crt").write_bytes(authority_of(certificate(found.pair)))
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "username").write_text("user")
    (tmp_path / "secret" / "password").write_text("pass")
    return found


def sent_to(files: Files) -> list[str | None]:
    return [headers.get("Authorization") for _, headers in files.asked]


def test_login_goes_to_the_token_server_without_its_redirects(here: Here) -> None:
    elsewhere = Files({"/token": b'{"token": "t0ken"}'})
    with serving(elsewhere, here.pair) as other:
        tokens = Files(redirects={"/token": f"{other}/token"})
        with serving(tokens, here.pair) as realm, here.registry(a_registry("disks/a", LAYER), realm) as url:
            assert here.run(url) == ""
    assert sent_to(tokens) == [LOGIN]
    assert sent_to(elsewhere) == [None]
    assert disk(here.volume) == IMAGE


def test_redirected_server_does_not_choose_the_token_server(here: Here) -> None:
    tokens = Files({"/token": b'{"token": "t0ken"}'})
    with serving(tokens, here.pair) as realm:
        elsewhere = Files(authorization="x", challenge=f'Bearer realm="{realm}/token",service="other"')
        with serving(elsewhere, here.pair) as other, serving(Files(redirects={"/v2/disks/a/manifests/1": f"{other}/a"}), here.pair) as url:
            assert "redirects to a server that requests credentials" in here.run(url)
    assert sent_to(elsewhere) == [None]
    assert not tokens.asked


def test_a_login_is_not_sent_without_encryption(here: Here) -> None:
    tokens = Files({"/token": b'{"token": "t0ken"}'})
    with serving(tokens) as realm, here.registry(a_registry("disks/a", LAYER), realm) as url:
        assert "answers 401" in here.run(url)
    assert not tokens.asked


def test_token_is_not_sent_to_redirected_servers(here: Here) -> None:
    files, elsewhere = a_registry("disks/a", LAYER), Files({"/blob": LAYER})
    with serving(elsewhere, here.pair) as other, here.registry(files) as url:
        files.redirects = {f"/v2/disks/a/blobs/{digest_of(LAYER)}": f"{other}/blob"}
        assert here.run(url) == ""
    assert sent_to(elsewhere) == [None]
    assert disk(here.volume) == IMAGE


def test_a_manifest_has_the_digest_by_which_it_was_asked_for(here: Here) -> None:
    files = a_registry("disks/a", LAYER)
    asked = next(path for path in files.content if "/manifests/sha256:" in path)
    files.content[asked] += b" "
    with here.registry(files) as url:
        for version in (":1", f"@{asked.rpartition('/')[2]}"):
            assert "returned another manifest than sha256:" in here.run(url, version)


def test_a_manifest_that_is_too_long_is_not_read(here: Here) -> None:
    files = a_registry("disks/a", LAYER)
    files.content["/v2/disks/a/manifests/1"] += bytes(4 << 20)
    with here.registry(files) as url:
        assert "returned no data, or too much" in here.run(url)


def extended(kind: bytes, data: bytes) -> bytes:
    header = tarfile.TarInfo("header")
    header.type, header.size = kind, len(data)
    return header.tobuf() + data.ljust(-(-len(data) // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE, b"\0")


@pytest.mark.parametrize(
    "headers",
    [
        extended(tarfile.XHDTYPE, b"20 hdrcharset=\xff\xff\n"),
        extended(tarfile.XHDTYPE, b"29 GNU.sparse.map=0,a,b,c,d\n"),
        extended(tarfile.XHDTYPE, b"9" * 5000 + b" path=x\n"),
        extended(tarfile.GNUTYPE_LONGNAME, b"disk/a.img\0") * 2000,
    ],
    ids=["characters that are none", "numbers that are none", "a long number", "headers of headers"],
)
def test_malformed_layer_headers_are_reported(here: Here, headers: bytes) -> None:
    layer = gzip.compress(headers + gzip.decompress(LAYER))
    with here.registry(a_registry("disks/a", layer)) as url:
        assert f"the layer {digest_of(layer)} is not an archive" in here.run(url)


def test_a_layer_that_ends_before_its_files_is_told(here: Here) -> None:
    """``tarfile`` would search for the next header behind each of its 2**53 blocks."""
    member = tarfile.TarInfo("other/file")
    member.size = 1 << 62
    with here.registry(a_registry("disks/a", gzip.compress(member.tobuf(format=tarfile.GNU_FORMAT)))) as url:
        assert "is not an archive: it ends before" in here.run(url)


def test_an_archive_needs_no_blocks_that_mark_its_end(here: Here) -> None:
    layer = gzip.compress(tarfile.TarInfo("other/file").tobuf())
    with here.registry(a_registry("disks/a", layer)) as url:
        assert "has no file below disk/" in here.run(url)


def test_non_regular_files_are_no_disks(here: Here) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, kind in (("disk/link", tarfile.SYMTYPE), ("disk/same", tarfile.LNKTYPE), ("disk/device", tarfile.BLKTYPE)):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "/etc/passwd"
            archive.addfile(member)
    with here.registry(a_registry("disks/a", packed.getvalue())) as url:
        assert "has no file below disk/" in here.run(url)


def test_an_index_that_is_none_is_told(here: Here) -> None:
    files = a_registry("disks/a", LAYER)
    with here.registry(files) as url:
        for manifest, words in (
            ({"manifests": {"a": 1}}, "other platforms"),
            ({"layers": [1]}, ("an invalid manifest")),
            ({}, "an invalid manifest"),
        ):
            files.content["/v2/disks/a/manifests/1"] = json.dumps(manifest).encode()
            assert words in here.run(url)


@pytest.mark.parametrize(
    "layers",
    [
        [{"disk/._disk.img": b"AppleDouble", "disk/disk.img": IMAGE}],
        [{"disk/disk.img": IMAGE}, {"disk/.keep": b""}],
        [{"disk/old.img": b"old"}, {"disk/.wh.old.img": b"", "disk/disk.img": IMAGE}],
        [{"disk/old.img": b"old"}, {"disk/.wh..wh..opq": b"", "disk/disk.img": IMAGE}],
        [{"disk/disk.img": b"old"}, {"disk/disk.img": IMAGE}],
    ],
    ids=["a file that macOS adds", "a file that keeps a directory", "a whiteout", "an opaque whiteout", "a newer one"],
)
def test_the_disk_is_the_one_that_the_layers_show_together(here: Here, layers: list[dict[str, bytes]]) -> None:
    with here.registry(a_registry("disks/a", *map(a_layer, layers))) as url:
        assert here.run(url) == ""
    assert disk(here.volume) == IMAGE


@pytest.mark.parametrize("layers", [[{"disk/a.img": IMAGE, "disk/b.img": IMAGE}], [{"disk/b.img": IMAGE}, {"disk/a.img": IMAGE}]])
def test_several_disks_are_refused(here: Here, layers: list[dict[str, bytes]]) -> None:
    with here.registry(a_registry("disks/a", *map(a_layer, layers))) as url:
        assert here.run(url).endswith("has several files below disk/: disk/a.img and disk/b.img")
    assert not list(here.volume.iterdir())


def test_a_disk_that_an_upper_layer_removed_is_not_there(here: Here) -> None:
    with here.registry(a_registry("disks/a", a_layer({"disk/a.img": IMAGE}), a_layer({".wh.disk": b""}))) as url:
        assert here.run(url).endswith("has no file below disk/")


def test_a_layer_of_zstd_is_read(here: Here) -> None:
    layer = zstd.compress(gzip.decompress(LAYER))
    with here.registry(a_registry("disks/a", layer)) as url:
        assert here.run(url) == ""
    assert disk(here.volume) == IMAGE


def test_a_sparse_file_of_gnu_tar_is_told(here: Here) -> None:
    member = tarfile.TarInfo("disk/a.img")
    member.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "1024", "GNU.sparse.name": "disk/a.img"}
    member.size = 512
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(member, io.BytesIO(b"1\n0\n512\n".ljust(512, b"\0")))
    with here.registry(a_registry("disks/a", packed.getvalue())) as url:
        assert "disk/a.img is a GNU tar sparse file" in here.run(url)
