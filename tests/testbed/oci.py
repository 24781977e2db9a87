"""Writes a container image of a few files as an OCI archive, without a container engine.

For images that are nothing but a static program: the sandbox, DNS, the tests' busybox. The OCI image specification says what the
archive holds; ``org.opencontainers.image.ref.name`` and ``io.containerd.image.name`` are the annotations by which an importer names it.
"""

import hashlib
import io
import json
import pathlib
import tarfile
from collections.abc import Mapping, Sequence

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"


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
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": {"mediaType": _CONFIG, "digest": _digest(configuration), "size": len(configuration)},
            "layers": [{"mediaType": _LAYER, "digest": _digest(layer), "size": len(layer)}],
        }
    ).encode()
    names = {"org.opencontainers.image.ref.name": reference.rpartition(":")[2], "io.containerd.image.name": reference}
    index = {
        "schemaVersion": 2,
        "manifests": [{"mediaType": _MANIFEST, "digest": _digest(manifest), "size": len(manifest), "annotations": names}],
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
