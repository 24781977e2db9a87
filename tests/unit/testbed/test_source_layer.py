from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.testbed import images, layout, oci, progress, project_images, source_layer

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


def applied(lower: oci.Layer, upper: oci.Layer) -> oci.Layer:
    found = dict(lower)
    for path, (_, content) in upper.items():
        directory, _, name = path.rpartition("/")
        hidden = f"{directory}/{name.removeprefix('.wh.')}"
        if name.startswith(".wh.") or content is not None:
            found = {each: member for each, member in found.items() if each != hidden and not each.startswith(f"{hidden}/")}
    return found | {path: member for path, member in upper.items() if ".wh." not in path}


@pytest.fixture
def earlier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> images.Image:
    monkeypatch.setenv("KUBEVIRT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("KUBEVIRT_STATE", str(tmp_path / "state"))
    loader = source_layer.interpreter_path(tmp_path / "base.tar") / "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"
    loader.parent.mkdir(parents=True)
    loader.write_text(f'#!/bin/sh\nshift 3\nunset PYTHONHOME\nexec {sys.executable} "$@"\n')
    loader.chmod(0o755)
    lower = images.Image(
        "localhost/a/below:1", "0" * 12, lambda archive: oci.write(archive, "localhost/a/below:1", {"true": Path("/bin/true")}, ["/true"])
    )
    image = images.Image(
        "localhost/a/source:1", "1" * 12, lambda archive: oci.write_over(archive, "localhost/a/source:1", lower.archive, {}), lower
    )
    images.ensure([image])
    return image


def compiled(root: Path, base: Path) -> oci.Layer:
    source_layer.compile_source(root, base, [root])
    layer = oci.layer_of(root)
    for directory in root.rglob("__pycache__"):
        shutil.rmtree(directory)
    return layer


def modules(root: Path) -> Path:
    for name in ("changed", "deleted", "kept", "package/__init__", "package/deep/module", "package/script", "becomes"):
        module = root / f"usr/{name}.py"
        module.parent.mkdir(parents=True, exist_ok=True)
        module.write_text(f"NAME = {name!r}\n")
    return root


CHANGES = {
    "true": set(),
    """
    echo >changed.py
    echo >package/added.py
    rm deleted.py
    rm -r package/deep
    chmod +x package/script.py
    rm becomes.py
    mkdir becomes.py
    touch becomes.py/file
    """: {
        "usr/changed.py",
        "usr/package",
        "usr/package/added.py",
        "usr/.wh.deleted.py",
        "usr/package/.wh.deep",
        "usr/package/script.py",
        "usr/becomes.py",
        "usr/becomes.py/file",
    },
    "rm -r package; touch package": {"usr/package"},
}


@pytest.mark.parametrize("change", CHANGES, ids=["none", "files", "directory to file"])
def test_changes_over_earlier_source_give_the_whole_source(change: str, tmp_path: Path, earlier: images.Image) -> None:
    root, base, image = modules(tmp_path / "modules"), tmp_path / "base.tar", images.Image(REFERENCE, "2" * 12, lambda _: None, earlier)
    assert earlier.below is not None
    oci.write_over(earlier.archive, earlier.reference, earlier.below.archive, compiled(root, base))
    before = oci.digest_of(earlier.archive)
    subprocess.run(["sh", "-ec", change], cwd=root / "usr", check=True)
    whole = compiled(root, base)

    source_layer.write(image.archive, REFERENCE, earlier, root, base)

    changes = oci.last_layer_of(image.archive)
    assert applied(oci.last_layer_of(earlier.archive), changes) == whole
    assert {path for path in changes if "pyc" not in path} - {"usr"} == CHANGES[change]
    assert oci.digest_of(earlier.archive) == before
    assert images.is_built(image)


def test_one_changed_line_gives_a_small_layer(tmp_path: Path, earlier: images.Image) -> None:
    root, base = tmp_path / "root", tmp_path / "base.tar"
    shutil.copytree(layout.REPOSITORY / "handler", root / "usr/handler", ignore=shutil.ignore_patterns("__pycache__"))
    assert earlier.below is not None
    oci.write_over(earlier.archive, earlier.reference, earlier.below.archive, compiled(root, base))
    with (root / "usr/handler/agent.py").open("a") as file:
        file.write("# one more line\n")

    source_layer.write(tmp_path / "upper.tar", REFERENCE, earlier, root, base)

    assert (tmp_path / "upper.tar").stat().st_size < 1 << 16 < earlier.archive.stat().st_size


def test_large_changes_become_the_earlier_source(tmp_path: Path, earlier: images.Image) -> None:
    root, base = modules(tmp_path / "modules"), tmp_path / "base.tar"
    (root / "usr/large").write_bytes(bytes((2 << 20) + 1))

    source_layer.write(tmp_path / "upper.tar", REFERENCE, earlier, root, base)

    assert oci.last_layer_of(earlier.archive) == oci.layer_of(root)
    assert oci.last_layer_of(tmp_path / "upper.tar") == {}
    assert oci.lies_on(tmp_path / "upper.tar", earlier.archive)
    assert images.is_built(earlier)


def test_bytecode_is_taken_over_from_unchanged_modules_only() -> None:
    old: oci.Layer = {f"a/{name}.py": (0o644, b"") for name in ("same", "changed", "executable", "deleted")}
    old = {**old, **{f"a/__pycache__/{name}.cpython-313.pyc": (0o644, b"") for name in ("same", "changed", "executable", "deleted")}}
    new: oci.Layer = {"a/same.py": (0o644, b""), "a/changed.py": (0o644, b"1"), "a/executable.py": (0o755, b""), "a/new.py": (0o644, b"")}

    assert source_layer.bytecode_of_unchanged(old, new) == {"a/same.py": "a/__pycache__/same.cpython-313.pyc"}


def test_unreadable_layer_says_what_to_remove(tmp_path: Path, earlier: images.Image) -> None:
    content = earlier.archive.read_bytes()
    start = content.index(b"\x1f\x8b")
    earlier.archive.write_bytes(content[:start] + bytes(len(content) - start))

    with pytest.raises(progress.StepFailed, match="remove it"):
        source_layer.write(tmp_path / "upper.tar", REFERENCE, earlier, modules(tmp_path / "modules"), tmp_path / "base.tar")


@pytest.mark.parametrize(
    ("present", "absent"),
    [
        ("", ["below-", "source-", "upper-"]),
        ("below-", ["source-", "upper-"]),
        ("below- source-", ["upper-"]),
        ("source-", ["upper-"]),
        ("below- upper-", []),
    ],
)
def test_node_gets_what_it_lacks_from_below_to_above(present: str, absent: list[str], earlier: images.Image) -> None:
    upper = images.Image(REFERENCE, "2" * 12, lambda archive: oci.write_over(archive, REFERENCE, earlier.archive, {}), earlier)
    images.ensure([upper])
    on_node: dict[str, str] = {}
    for image in upper.chain:
        manifest, identifier = images._digests(image.archive)
        on_node |= {image.reference: manifest, identifier: manifest} if image.prefix in present.split() else {}

    assert [image.prefix for image in images.absent_of([upper, upper], on_node)] == absent


def test_image_is_rebuilt_with_all_below_it(tmp_path: Path, earlier: images.Image) -> None:
    upper = images.Image(REFERENCE, "2" * 12, lambda archive: oci.write_over(archive, REFERENCE, earlier.archive, {}), earlier)
    images.ensure([upper])
    assert earlier.below is not None
    below(tmp_path, b"another program").rename(earlier.below.archive)

    assert not images.is_built(earlier)
    assert oci.lies_on(upper.archive, earlier.archive)
    assert not images.is_built(upper)
    images.ensure([upper])
    assert all(map(images.is_built, upper.chain))


def test_image_is_rebuilt_when_its_base_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBEVIRT_CACHE", str(tmp_path / "cache"))
    lower = images.Image("localhost/a/below:1", "0" * 12, lambda _: None)
    upper = images.Image(REFERENCE, "1" * 12, lambda _: None, lower)
    lower.archive.parent.mkdir(parents=True)
    assert not images.is_built(upper)

    oci.write_over(upper.archive, REFERENCE, below(tmp_path), {})
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
    assert len({each.reference for each in image.chain}) == 3
    more = project_images.Process(process.name, process.extra, (*process.sources, "docs"), process.module)
    other = project_images._image_of_process(more)
    assert other.digest != image.digest
    assert [each.digest for each in other.chain[:-1]] == [each.digest for each in image.chain[:-1]]


def test_image_has_bytecode_next_to_its_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBEVIRT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("KUBEVIRT_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path / "elsewhere"))
    loader = source_layer.interpreter_path(tmp_path / "base.tar") / "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"
    loader.parent.mkdir(parents=True)
    root = source(tmp_path)
    loader.write_text(f'#!/bin/sh\necho "prefix=$PYTHONPYCACHEPREFIX" >{root}/usr/module.pyc\n')
    loader.chmod(0o755)

    source_layer.compile_source(root, tmp_path / "base.tar", [root])

    assert (root / "usr/module.pyc").read_text() == "prefix=\n"
