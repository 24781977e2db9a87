"""Writes a container image of a few files as an OCI archive, without a container engine.

For images of one static program (the sandbox, DNS, the tests' busybox), and for images that add one layer to another image and leave out
its layers. Importers take the name from the annotations ``org.opencontainers.image.ref.name`` and ``io.containerd.image.name``.
"""

import gzip
import hashlib
import io
import json
import pathlib
import tarfile
from collections.abc import Mapping, Sequence
from typing import Any

from tests.testbed import progress

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_COMPRESSED_LAYER = f"{_LAYER}+gzip"
_QUICKEST = 1


def write(
    archive: pathlib.Path,
    reference: str,
    files: Mapping[str, pathlib.Path],
    entrypoint: Sequence[str],
    *,
    links: Mapping[str, str] | None = None,
) -> None:
    """Write ``archive``: one layer with ``files`` (path in the image to file here, all executable) and symbolic ``links``."""
    layer = _layer(files, links or {})
    configuration = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin"], "Entrypoint": list(entrypoint)},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        }
    ).encode()
    _write(archive, reference, configuration, [_descriptor(_LAYER, layer)], layer)


def write_over(archive: pathlib.Path, reference: str, below: pathlib.Path, layer: bytes) -> None:
    """Write ``archive``: the image of the archive ``below`` with one more layer, a tar file.

    The new archive names the layers of ``below`` without containing them; a node gets them from that archive.
    """
    manifest = manifest_of(below)
    configuration = blob_of(below, manifest["config"]["digest"])
    configuration["rootfs"]["diff_ids"].append(_digest(layer))
    configuration.setdefault("history", []).append({"created_by": "tests/testbed/source_layer.py"})
    compressed = gzip.compress(layer, _QUICKEST, mtime=0)
    layers = [*manifest["layers"], _descriptor(_COMPRESSED_LAYER, compressed)]
    _write(archive, reference, json.dumps(configuration).encode(), layers, compressed)


def lies_on(archive: pathlib.Path, below: pathlib.Path) -> bool:
    """Return whether ``archive``, written by :func:`write_over`, names exactly the layers of ``below`` under its own one."""
    return bool(manifest_of(archive)["layers"][:-1] == manifest_of(below)["layers"])


def manifest_of(archive: pathlib.Path) -> dict[str, Any]:
    return blob_of(archive, digest_of(archive))


def digest_of(archive: pathlib.Path) -> str:
    return str(_member(archive, "index.json")["manifests"][0]["digest"])


def blob_of(archive: pathlib.Path, digest: str) -> dict[str, Any]:
    return _member(archive, f"blobs/sha256/{digest.partition(':')[2]}")


def _member(archive: pathlib.Path, name: str) -> dict[str, Any]:
    try:
        with tarfile.open(archive) as tar:
            file = tar.extractfile(name)
            assert file is not None
            content: dict[str, Any] = json.load(file)
            return content
    except (OSError, KeyError, tarfile.TarError, ValueError, AssertionError) as error:
        raise progress.StepFailed(f"{archive} is no OCI archive ({error}): remove it and try again") from error


def layer_of(directory: pathlib.Path) -> bytes:
    """Return a layer, a tar file, with everything below ``directory``; equal contents give equal bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path in sorted(directory.rglob("*")):
            name = str(path.relative_to(directory))
            if path.is_dir():
                member = tarfile.TarInfo(name)
                member.type = tarfile.DIRTYPE
                member.mode = 0o755
                tar.addfile(member)
            else:
                _add(tar, name, path.read_bytes(), 0o755 if path.stat().st_mode & 0o100 else 0o644)
    return buffer.getvalue()


def _descriptor(kind: str, blob: bytes) -> dict[str, Any]:
    return {"mediaType": kind, "digest": _digest(blob), "size": len(blob)}


def _write(archive: pathlib.Path, reference: str, configuration: bytes, layers: Sequence[Mapping[str, Any]], layer: bytes) -> None:
    content = {"schemaVersion": 2, "mediaType": _MANIFEST, "config": _descriptor(_CONFIG, configuration), "layers": layers}
    manifest = json.dumps(content).encode()
    names = {"org.opencontainers.image.ref.name": reference.rpartition(":")[2], "io.containerd.image.name": reference}
    index = {
        "schemaVersion": 2,
        "manifests": [{**_descriptor(_MANIFEST, manifest), "annotations": names}],
    }
    archive.parent.mkdir(parents=True, exist_ok=True)
    new = archive.with_name(archive.name + ".new")
    with tarfile.open(new, "w") as tar:
        _add(tar, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        _add(tar, "index.json", json.dumps(index).encode())
        for blob in (manifest, configuration, layer):
            _add(tar, f"blobs/sha256/{hashlib.sha256(blob).hexdigest()}", blob)
    new.replace(archive)


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    member.mode = mode
    tar.addfile(member, io.BytesIO(content))


def _layer(files: Mapping[str, pathlib.Path], links: Mapping[str, str]) -> bytes:
    buffer = io.BytesIO()
    directories = {str(parent) for path in (*files, *links) for parent in pathlib.PurePosixPath(path).parents} - {"."} | {"tmp"}
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in sorted(directories):
            member = tarfile.TarInfo(name)
            member.type = tarfile.DIRTYPE
            member.mode = 0o1777 if name == "tmp" else 0o755
            tar.addfile(member)
        for name, source in sorted(files.items()):
            _add(tar, name, source.read_bytes(), 0o755)
        for name, target in sorted(links.items()):
            member = tarfile.TarInfo(name)
            member.type = tarfile.SYMTYPE
            member.linkname = target
            tar.addfile(member)
    return buffer.getvalue()
