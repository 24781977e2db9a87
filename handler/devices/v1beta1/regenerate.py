"""Regenerate ``api_pb2.py`` and its types from ``api.proto``: ``python -m handler.devices.v1beta1.regenerate``.

Needs ``grpcio-tools`` (development only). Without gRPC's stubs: the plugin uses generic handlers.
"""

from __future__ import annotations

import sys
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).parents[3]
PROTO = "handler/devices/v1beta1/api.proto"


def main() -> int:
    """Generate the kubelet's API from its definition; return protoc's exit status."""
    return int(protoc.main(["protoc", f"-I{ROOT}", f"--python_out={ROOT}", f"--pyi_out={ROOT}", PROTO]))


if __name__ == "__main__":
    sys.exit(main())
