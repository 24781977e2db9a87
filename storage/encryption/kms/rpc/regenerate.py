"""Regenerate ``kms_pb2.py``: ``python -m storage.encryption.kms.rpc.regenerate`` (needs Go for the module cache, and grpcio-tools).

Kubernetes publishes both protocols in Go modules (Apache-2.0). The enumeration becomes the number that it is on the wire.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

from storage.etcd.rpc.regenerate import message

VERSION = "v0.36.3"
SOURCES = {
    "k8s.io/kms": ("apis/v2/api.proto", ("StatusResponse", "DecryptRequest", "DecryptResponse", "EncryptRequest", "EncryptResponse")),
    "k8s.io/apiserver": ("pkg/storage/value/encrypt/envelope/kmsv2/v2/api.proto", ("EncryptedObject",)),
}
HERE = Path(__file__).parent
ROOT = HERE.parents[3]


def main() -> None:
    """Write the stubs beside this file."""
    from grpc_tools import protoc  # development only

    parts = ['syntax = "proto3";\npackage kubevirt.kms;\n']
    for module, (path, names) in SOURCES.items():
        found = subprocess.run(["go", "mod", "download", "-json", f"{module}@{VERSION}"], check=True, capture_output=True)
        source = Path(json.loads(found.stdout)["Dir"], path).read_text()
        parts += [message(source, name).replace("EncryptedDEKSourceType enc", "int32 enc") for name in names]
    with tempfile.TemporaryDirectory() as directory:
        package = Path(directory, HERE.relative_to(ROOT))
        package.mkdir(parents=True)
        (package / "kms.proto").write_text("\n".join(parts))
        arguments = ["protoc", f"-I{directory}", f"--python_out={ROOT}", f"--pyi_out={ROOT}", str(package / "kms.proto")]
        if protoc.main(arguments):
            raise SystemExit("protoc failed")
    types = HERE / "kms_pb2.pyi"
    types.write_text(types.read_text().replace("_Mapping]", "_Mapping[str, object]]"))  # protoc leaves them bare; mypy is strict


if __name__ == "__main__":
    main()
