"""Regenerate ``rpc_pb2.py``: ``python -m storage.etcd.rpc.regenerate`` (needs Go for the module cache, and grpcio-tools).

etcd publishes its protocol in the Go module ``go.etcd.io/etcd/api/v3`` (Apache-2.0). We take the messages that the client uses, with
their numbers as they are, and leave out the options for Go's code generators and HTTP gateways, which would drag in more files.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from pathlib import Path

VERSION = "v3.6.8"
SOURCES = {
    "mvccpb/kv.proto": ("KeyValue", "Event"),
    "etcdserverpb/rpc.proto": (
        "ResponseHeader",
        "RangeRequest",
        "RangeResponse",
        "PutRequest",
        "PutResponse",
        "DeleteRangeRequest",
        "DeleteRangeResponse",
        "RequestOp",
        "ResponseOp",
        "Compare",
        "TxnRequest",
        "TxnResponse",
        "CompactionRequest",
        "CompactionResponse",
        "WatchRequest",
        "WatchCreateRequest",
        "WatchCancelRequest",
        "WatchProgressRequest",
        "WatchResponse",
        "StatusRequest",
        "StatusResponse",
        "DowngradeInfo",
    ),
}
HERE = Path(__file__).parent
ROOT = HERE.parents[2]


def message(source: str, name: str) -> str:
    """Return the text of the top-level message ``name`` without comments and field options."""
    begin = source.index(f"\nmessage {name} {{") + 1
    text = source[begin : source.index("\n}\n", begin) + 3]
    text = re.sub(r"\s*//[^\n]*", "", text)
    text = re.sub(r"\n\s*option [^;]*;", "", text)
    return re.sub(r"\s*\[[^\]]*\]", "", text).replace("mvccpb.", "")


def protocol(module: Path) -> str:
    """Return one proto file with the messages of ``SOURCES``, in a package of our own.

    Package and message names do not travel over the wire, and a name of our own cannot clash with other stubs of etcd in the process.
    """
    parts = ['syntax = "proto3";\npackage kubevirt.etcd;\n']
    for path, names in SOURCES.items():
        source = (module / path).read_text()
        parts += [message(source, name) for name in names]
    return "\n".join(parts)


def main() -> None:
    """Write the stubs beside this file."""
    from grpc_tools import protoc  # development only

    found = subprocess.run(["go", "mod", "download", "-json", f"go.etcd.io/etcd/api/v3@{VERSION}"], check=True, capture_output=True)
    with tempfile.TemporaryDirectory() as directory:
        package = Path(directory, HERE.relative_to(ROOT))
        package.mkdir(parents=True)
        (package / "rpc.proto").write_text(protocol(Path(json.loads(found.stdout)["Dir"])))
        arguments = ["protoc", f"-I{directory}", f"--python_out={ROOT}", f"--pyi_out={ROOT}", str(package / "rpc.proto")]
        if protoc.main(arguments):
            raise SystemExit("protoc failed")
    types = HERE / "rpc_pb2.pyi"
    types.write_text(types.read_text().replace("_Mapping]", "_Mapping[str, object]]"))  # protoc leaves them bare; mypy is strict


if __name__ == "__main__":
    main()
