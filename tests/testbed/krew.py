"""``make krew``: the plugin as an archive for krew, and its manifest.

    python3 -m tests.testbed.krew URI [--to build/krew]

The archive has the plugin's sources with the installed versions of its libraries, without their compiled parts, so it fits all systems.
Equal sources and versions give equal bytes.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import tarfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement

ROOT: Final = Path(__file__).parents[2]
TEMPLATES: Final = ROOT / "apiserver/kubectl/krew"
PROGRAM: Final = "kubectl-virt"
ARCHIVE: Final = "kubectl-virt.tar.gz"
MANIFEST: Final = "virt.yaml"
PACKAGES: Final = ("apiserver/kubectl", "apiserver/apis", "certs")
"""What the plugin imports, besides the modules of ``apiserver`` itself."""
_LEFT_OUT: Final = frozenset({".so", ".pyd", ".c", ".pyx", ".pxd", ".h", ".pyc", ".pyi"})


def project() -> Mapping[str, Any]:
    found: Mapping[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def libraries(wanted: Iterable[str]) -> dict[str, metadata.Distribution]:
    found: dict[str, metadata.Distribution] = {}
    waiting = [Requirement(each) for each in wanted]
    while waiting:
        one = waiting.pop()
        if one.name.lower() in found or (one.marker and not one.marker.evaluate({"extra": ""})):
            continue
        found[one.name.lower()] = distribution = metadata.distribution(one.name)
        waiting += [Requirement(each) for each in distribution.requires or ()]
    return found


def content() -> dict[str, bytes]:
    sources = [
        ROOT / "pyproject.toml",
        *(ROOT / "apiserver").glob("*.py"),
        *(path for name in PACKAGES for path in (ROOT / name).rglob("*.py")),
    ]
    files: dict[str, bytes] = {}
    for each in libraries(project()["dependencies"]).values():
        files |= {f"lib/{name}": path.read_bytes() for name, path in _files(each)}
    files |= {f"lib/{path.relative_to(ROOT)}": path.read_bytes() for path in sources}  # last, because libraries install a pyproject.toml
    return {PROGRAM: (TEMPLATES / PROGRAM).read_bytes(), "LICENSE": (ROOT / "LICENSE").read_bytes(), **files}


def _files(of: metadata.Distribution) -> Iterator[tuple[str, Path]]:
    for each in of.files or ():
        path = Path(str(of.locate_file(each)))
        if ".." not in each.parts and path.suffix not in _LEFT_OUT and each.name not in {"RECORD", "INSTALLER", "REQUESTED"}:
            yield str(each), path


def packed(files: Mapping[str, bytes]) -> bytes:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for name in sorted(files):
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(files[name]), 0o755 if name == PROGRAM else 0o644
            archive.addfile(member, io.BytesIO(files[name]))
    return gzip.compress(plain.getvalue(), mtime=0)


def manifest(archive: bytes, uri: str) -> str:
    values = {"VERSION": project()["version"], "URI": uri, "SHA256": hashlib.sha256(archive).hexdigest()}
    text = (TEMPLATES / MANIFEST).read_text()
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    return text


def main() -> None:
    parser = argparse.ArgumentParser(prog="python3 -m tests.testbed.krew", description="Build the plugin's archive and manifest for krew.")
    parser.add_argument("uri", help=f"address of the archive, such as https://server.example/v0.1.0/{ARCHIVE}")
    parser.add_argument("--to", type=Path, default=Path("build/krew"), help="directory (default build/krew)")
    given = parser.parse_args()
    archive = packed(content())
    given.to.mkdir(parents=True, exist_ok=True)
    for name, data in ((ARCHIVE, archive), (MANIFEST, manifest(archive, given.uri).encode())):
        (given.to / name).write_bytes(data)
        print(given.to / name)


if __name__ == "__main__":
    main()
