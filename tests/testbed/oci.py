"""Writes container images as OCI archives, without a container engine.

For images of one static program, and for layers over another image. Importers take the name from the annotations
``org.opencontainers.image.ref.name`` and ``io.containerd.image.name``.
"""

import gzip
import hashlib
import io
import json
import pathlib
import tarfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.testbed import progress

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_COMPRESSED_LAYER = f"{_LAYER}+gzip"
_QUICKEST = 1

Layer = Mapping[str, tuple[int, bytes | None]]
"""Mode and content by path; directories have ``None``."""


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


def write_over(archive: pathlib.Path, reference: str, below: pathlib.Path, added: Layer) -> None:
    """Write ``archive``: the image of the archive ``below`` with one more layer.

    It names the layers of ``below`` without containing them.
    """
    manifest, layer = manifest_of(below), _tar_of(added)
    configuration = blob_of(below, manifest["config"]["digest"])
    configuration["rootfs"]["diff_ids"].append(_digest(layer))
    configuration.setdefault("history", []).append({"created_by": "tests/testbed/source_layer.py"})
    compressed = gzip.compress(layer, _QUICKEST, mtime=0)
    layers = [*manifest["layers"], _descriptor(_COMPRESSED_LAYER, compressed)]
    _write(archive, reference, json.dumps(configuration).encode(), layers, compressed)


def lies_on(archive: pathlib.Path, below: pathlib.Path) -> bool:
    """Return whether ``archive`` names exactly the layers of ``below`` under its own one."""
    return bool(manifest_of(archive)["layers"][:-1] == manifest_of(below)["layers"])


def last_layer_of(archive: pathlib.Path) -> Layer:
    tar = _member(archive, _path_of(manifest_of(archive)["layers"][-1]["digest"]), gzip.decompress)
    with tarfile.open(fileobj=io.BytesIO(tar)) as layer:
        return {each.name: (each.mode, file.read() if (file := layer.extractfile(each)) else None) for each in layer}


def manifest_of(archive: pathlib.Path) -> dict[str, Any]:
    return blob_of(archive, digest_of(archive))


def digest_of(archive: pathlib.Path) -> str:
    return str(_member(archive, "index.json")["manifests"][0]["digest"])


def blob_of(archive: pathlib.Path, digest: str) -> dict[str, Any]:
    content: dict[str, Any] = _member(archive, _path_of(digest))
    return content


def _path_of(digest: str) -> str:
    return f"blobs/sha256/{digest.partition(':')[2]}"


def _member(archive: pathlib.Path, name: str, parse: Callable[[bytes], Any] = json.loads) -> Any:
    try:
        with tarfile.open(archive) as tar:
            file = tar.extractfile(name)
            assert file is not None
            return parse(file.read())
    except (OSError, EOFError, KeyError, tarfile.TarError, zlib.error, ValueError, AssertionError) as error:
        raise progress.StepFailed(f"{archive} is no OCI archive ({error}): remove it and try again") from error


def layer_of(directory: pathlib.Path) -> Layer:
    return {
        str(path.relative_to(directory)): (0o755 if path.stat().st_mode & 0o100 else 0o644, None if path.is_dir() else path.read_bytes())
        for path in directory.rglob("*")
    }


def difference(old: Layer, new: Layer) -> Layer:
    """Return a layer that, over ``old``, gives ``new``."""
    directories = {".", *(name for name, (_, content) in new.items() if content is None)}
    # A directory's whiteout, or a file in its place, hides its content.
    gone = [path for path in map(pathlib.PurePosixPath, old.keys() - new.keys()) if str(path.parent) in directories]
    changed = [name for name, member in new.items() if old.get(name) != member]
    # A layer with a directory sets its time.
    parents = {str(parent) for path in (*gone, *map(pathlib.PurePosixPath, changed)) for parent in path.parents} - {"."}
    return {name: new[name] for name in (*parents, *changed)} | {str(path.with_name(f".wh.{path.name}")): (0o644, b"") for path in gone}


def _tar_of(layer: Layer) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, (mode, content) in sorted(layer.items(), key=lambda each: each[0].split("/")):
            if content is None:
                _add_directory(tar, name, mode)
            else:
                _add(tar, name, content, mode)
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


def _add_directory(tar: tarfile.TarFile, name: str, mode: int) -> None:
    member = tarfile.TarInfo(name)
    member.type = tarfile.DIRTYPE
    member.mode = mode
    tar.addfile(member)


def _layer(files: Mapping[str, pathlib.Path], links: Mapping[str, str]) -> bytes:
    buffer = io.BytesIO()
    directories = {str(parent) for path in (*files, *links) for parent in pathlib.PurePosixPath(path).parents} - {"."} | {"tmp"}
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in sorted(directories):
            _add_directory(tar, name, 0o1777 if name == "tmp" else 0o755)
        for name, source in sorted(files.items()):
            _add(tar, name, source.read_bytes(), 0o755)
        for name, target in sorted(links.items()):
            member = tarfile.TarInfo(name)
            member.type = tarfile.SYMTYPE
            member.linkname = target
            tar.addfile(member)
    return buffer.getvalue()
