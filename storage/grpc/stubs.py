"""Generate message stubs from Go modules, in development (needs Go for the module cache, and grpcio-tools)."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]


def published(module: str, version: str) -> Path:
    """Download a Go module; return its source directory. Raises CalledProcessError."""
    found = subprocess.run(["go", "mod", "download", "-json", f"{module}@{version}"], check=True, capture_output=True)
    return Path(json.loads(found.stdout)["Dir"])


def message(source: str, name: str) -> str:
    """Return the text of top-level message ``name`` in a proto file, without comments and options. Raises ValueError."""
    begin = source.index(f"\nmessage {name} {{") + 1
    text = source[begin : source.index("\n}\n", begin) + 3]
    text = re.sub(r"\s*//[^\n]*", "", text)
    text = re.sub(r"\n\s*option [^;]*;", "", text)
    return re.sub(r"\s*\[[^\]]*\]", "", text)


def write(package: Path, name: str, protocol: str) -> None:
    """Write ``<name>_pb2.py`` and its types into a package; ``protocol``: the proto file's text. Raises SystemExit."""
    from grpc_tools import protoc  # development only

    with tempfile.TemporaryDirectory() as directory:
        proto = Path(directory, package.relative_to(ROOT), f"{name}.proto")
        proto.parent.mkdir(parents=True)
        proto.write_text(protocol)
        if protoc.main(["protoc", f"-I{directory}", f"--python_out={ROOT}", f"--pyi_out={ROOT}", str(proto)]):
            raise SystemExit("protoc failed")
    types = package / f"{name}_pb2.pyi"
    types.write_text(types.read_text().replace("_Mapping]", "_Mapping[str, object]]"))  # protoc leaves them bare; mypy is strict
