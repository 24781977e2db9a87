"""Regenerate ``rpc_pb2.py``: ``python -m storage.etcd.rpc.regenerate`` (needs Go for the module cache, and grpcio-tools).

etcd publishes its protocol in the Go module ``go.etcd.io/etcd/api/v3`` (Apache-2.0).
"""

from __future__ import annotations

from pathlib import Path

from storage.grpc import stubs

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


def protocol(module: Path) -> str:
    """Return the text of one proto file with the messages of ``SOURCES``, in a package that clashes with no other stubs of etcd."""
    parts = ['syntax = "proto3";\npackage kubevirt.etcd;\n']
    for path, names in SOURCES.items():
        source = (module / path).read_text()
        parts += [stubs.message(source, name).replace("mvccpb.", "") for name in names]
    return "\n".join(parts)


def main() -> None:
    """Write ``rpc_pb2.py`` and its types next to this module."""
    text = protocol(stubs.published("go.etcd.io/etcd/api/v3", VERSION))
    stubs.write(Path(__file__).parent, "rpc", text)


if __name__ == "__main__":
    main()
