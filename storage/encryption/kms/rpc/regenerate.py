"""Regenerate ``kms_pb2.py``: ``python -m storage.encryption.kms.rpc.regenerate`` (needs Go for the module cache, and grpcio-tools).

Kubernetes publishes both protocols in Go modules (Apache-2.0). The enumeration becomes its number on the wire.
"""

from __future__ import annotations

from pathlib import Path

from storage.grpc import stubs

VERSION = "v0.36.3"
SOURCES = {
    "k8s.io/kms": ("apis/v2/api.proto", ("StatusResponse", "DecryptRequest", "DecryptResponse", "EncryptRequest", "EncryptResponse")),
    "k8s.io/apiserver": ("pkg/storage/value/encrypt/envelope/kmsv2/v2/api.proto", ("EncryptedObject",)),
}


def main() -> None:
    """Write ``kms_pb2.py`` and its types next to this module."""
    parts = ['syntax = "proto3";\npackage kubevirt.kms;\n']
    for module, (path, names) in SOURCES.items():
        source = (stubs.published(module, VERSION) / path).read_text()
        parts += [stubs.message(source, name).replace("EncryptedDEKSourceType enc", "int32 enc") for name in names]
    stubs.write(Path(__file__).parent, "kms", "\n".join(parts))


if __name__ == "__main__":
    main()
