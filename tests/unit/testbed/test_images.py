from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

from tests.testbed import images, oci


def blobs(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as tar:
        return {member.name: file.read() for member in tar if (file := tar.extractfile(member))}


def test_archive_names_its_image_and_its_blobs_have_digests(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF")

    oci.write(tmp_path / "image.tar", "localhost/a/b:1", {"bin/program": program}, ["/bin/program"], links={"bin/sh": "program"})

    content = blobs(tmp_path / "image.tar")
    entry = json.loads(content["index.json"])["manifests"][0]
    assert entry["annotations"]["io.containerd.image.name"] == "localhost/a/b:1"
    for name, blob in content.items():
        if name.startswith("blobs/sha256/"):
            assert hashlib.sha256(blob).hexdigest() == name.removeprefix("blobs/sha256/")
    manifest = json.loads(content["blobs/sha256/" + entry["digest"].removeprefix("sha256:")])
    layer = content["blobs/sha256/" + manifest["layers"][0]["digest"].removeprefix("sha256:")]
    with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
        assert tar.getmember("bin/program").mode == 0o755
        assert tar.getmember("bin/sh").linkname == "program"


def test_digest_covers_content_name_and_executable_bit(tmp_path: Path) -> None:
    directory = tmp_path / "source"
    directory.mkdir()
    file = directory / "module.py"
    file.write_text("1")
    digests = [images.digest_of([directory])]

    file.write_text("2")
    digests.append(images.digest_of([directory]))
    file.chmod(0o755)
    digests.append(images.digest_of([directory]))
    file.rename(directory / "other.py")
    digests.append(images.digest_of([directory]))

    assert len(set(digests)) == len(digests)


def test_a_digest_does_not_change_with_compiled_files(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("1")
    before = images.digest_of([tmp_path])
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "module.pyc").write_bytes(b"compiled")

    assert images.digest_of([tmp_path]) == before
