"""Which part of which process speaks HTTP and gRPC through which library: docs/decisions/code.md says why."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator

import pytest

from tests.architecture.test_structure import ROOT, modules

HOLDERS = {
    "httptools": {"apiserver/client"},  # HTTP, as a client: virt-api, virt-controller, virt-handler
    "aiohttp": {"controller/serving", "handler/streams", "apiserver/kubectl"},  # HTTP, as a server; and the plugin, as a client
    "http.client": {"importer"},  # HTTP, as a client of the standard library alone
    "websockets": {"apiserver/endpoints", "apiserver/kubectl"},  # streams, once HTTP is left
    "hpack": {"storage/grpc"},  # gRPC, as a client: virt-api
    "grpclib": {"handler/devices"},  # gRPC, as a server and a client of the kubelet: virt-handler
    "grpc": set[str](),  # gRPC's own library comes with the exporter of spans, where tracing is on
    "grpc_tools": {"storage/grpc", "handler/devices"},  # writes stubs, in development
    "opentelemetry": {"apiserver/server"},
}
OTHERS = ("h11", "h2", "httpx", "requests", "urllib3", "wsproto", "http.server", "urllib.request", "kubernetes")
"""Further ways to speak them that nothing of ours takes."""


@functools.cache
def imports() -> dict[str, set[str]]:
    """Return what is imported by each package, two names deep: by one without rooms, itself."""
    found: dict[str, set[str]] = {}
    for path in modules():
        package = "/".join(path.relative_to(ROOT).parts[:-1][:2])
        found.setdefault(package, set()).update(imported(ast.parse(path.read_text(encoding="utf-8"))))
    return found


def imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)  # from http import client


def holders(library: str) -> set[str]:
    return {package for package, names in imports().items() if any(f"{name}.".startswith(f"{library}.") for name in names)}


@pytest.mark.parametrize(("library", "allowed"), [*HOLDERS.items(), *((each, set()) for each in OTHERS)], ids=[*HOLDERS, *OTHERS])
def test_a_protocol_is_spoken_where_it_was_decided(library: str, allowed: set[str]) -> None:
    assert holders(library) == allowed
