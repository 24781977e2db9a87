from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.testbed import images, oci, progress, project_images, source_layer

REFERENCE = "localhost/a/upper:1"


def blobs(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as tar:
        return {member.name: file.read() for member in tar if (file := tar.extractfile(member))}


def below(directory: Path, content: bytes = b"\x7fELF") -> Path:
    program = directory / "program"
    program.write_bytes(content)
    oci.write(directory / "below.tar", "localhost/a/below:1", {"bin/program": program}, ["/bin/program"])
    return directory / "below.tar"


def source(directory: Path) -> Path:
    root = directory / "source"
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/command").write_text("#!/bin/sh\n")
    (root / "usr/bin/command").chmod(0o755)
    (root / "usr/module.py").write_text("X = 1\n")
    return root


def configuration(archive: Path) -> dict[str, Any]:
    return oci.blob_of(archive, oci.manifest_of(archive)["config"]["digest"])


def test_derived_image_adds_one_layer_to_its_base(tmp_path: Path) -> None:
    lower, upper = below(tmp_path), tmp_path / "upper.tar"
    oci.write_over(upper, REFERENCE, lower, oci.layer_of(source(tmp_path)))

    first, last = oci.manifest_of(upper)["layers"]
    layer = gzip.decompress(blobs(upper)["blobs/sha256/" + last["digest"].removeprefix("sha256:")])

    assert [first] == oci.manifest_of(lower)["layers"]
    assert configuration(upper)["config"] == configuration(lower)["config"]
    diffs = configuration(upper)["rootfs"]["diff_ids"]
    assert diffs == [*configuration(lower)["rootfs"]["diff_ids"], f"sha256:{hashlib.sha256(layer).hexdigest()}"]
    with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
        assert [(each.name, each.mode) for each in tar] == [
            ("usr", 0o755),
            ("usr/bin", 0o755),
            ("usr/bin/command", 0o755),
            ("usr/module.py", 0o644),
        ]


def test_derived_archive_omits_base_layers_and_has_digests(tmp_path: Path) -> None:
    lower, upper = below(tmp_path, b"\x7fELF" * 100_000), tmp_path / "upper.tar"
    oci.write_over(upper, REFERENCE, lower, oci.layer_of(source(tmp_path)))

    names = {name.removeprefix("blobs/sha256/"): blob for name, blob in blobs(upper).items() if name.startswith("blobs/")}

    assert oci.manifest_of(lower)["layers"][0]["digest"].removeprefix("sha256:") not in names
    assert all(hashlib.sha256(blob).hexdigest() == name for name, blob in names.items())
    assert json.loads(blobs(upper)["index.json"])["manifests"][0]["annotations"]["io.containerd.image.name"] == REFERENCE
    assert upper.stat().st_size < 20_000


def test_equal_sources_give_an_equal_archive_despite_file_times(tmp_path: Path) -> None:
    lower, root = below(tmp_path), source(tmp_path)
    oci.write_over(tmp_path / "first.tar", REFERENCE, lower, oci.layer_of(root))
    (root / "usr/module.py").write_text("X = 1\n")
    (root / "usr/bin/command").touch()
    oci.write_over(tmp_path / "second.tar", REFERENCE, lower, oci.layer_of(root))

    assert oci.digest_of(tmp_path / "first.tar") == oci.digest_of(tmp_path / "second.tar")


def test_image_is_rebuilt_when_its_base_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBEVIRT_CACHE", str(tmp_path / "cache"))
    lower = images.Image("localhost/a/below:1", "0" * 12, lambda _: None)
    upper = images.Image(REFERENCE, "1" * 12, lambda _: None, lower)
    lower.archive.parent.mkdir(parents=True)
    assert not images.is_built(upper)

    oci.write_over(upper.archive, REFERENCE, below(tmp_path), b"")
    assert not images.is_built(upper)
    below(tmp_path).rename(lower.archive)
    assert images.is_built(upper)
    below(tmp_path, b"another program").rename(lower.archive)
    assert not images.is_built(upper)


def test_invalid_archive_says_what_to_remove(tmp_path: Path) -> None:
    (tmp_path / "empty.tar").write_bytes(b"")
    with pytest.raises(progress.StepFailed, match=r"empty\.tar is no OCI archive"):
        oci.digest_of(tmp_path / "empty.tar")


@pytest.mark.parametrize("process", project_images.PROCESSES, ids=lambda process: process.name)
def test_a_change_of_source_leaves_the_image_below_as_it_is(process: project_images.Process) -> None:
    image = project_images.image_of(process.name)
    assert image.below is not None
    assert image.below.reference != image.reference
    more = project_images.Process(process.name, process.extra, (*process.sources, "docs"), process.module)
    other = project_images._image_of_process(more)
    assert other.digest != image.digest
    assert other.below is not None
    assert other.below.digest == image.below.digest


def test_image_has_bytecode_next_to_its_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBEVIRT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("KUBEVIRT_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path / "elsewhere"))
    loader = source_layer.interpreter_path(tmp_path / "base.tar") / "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"
    loader.parent.mkdir(parents=True)
    root = source(tmp_path)
    loader.write_text(f'#!/bin/sh\necho "prefix=$PYTHONPYCACHEPREFIX" >{root}/usr/module.pyc\n')
    loader.chmod(0o755)

    source_layer.write(tmp_path / "upper.tar", REFERENCE, below(tmp_path), root, tmp_path / "base.tar")

    last = oci.manifest_of(tmp_path / "upper.tar")["layers"][-1]["digest"].removeprefix("sha256:")
    with tarfile.open(fileobj=io.BytesIO(blobs(tmp_path / "upper.tar")[f"blobs/sha256/{last}"])) as layer:
        assert (file := layer.extractfile("usr/module.pyc")) is not None
        assert file.read() == b"prefix=\n"
