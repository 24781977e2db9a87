"""The library for HTTP and gRPC in each part; reasons: docs/decisions/code.md."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator

import pytest

from tests.architecture.test_structure import ROOT, modules, statements

HOLDERS = {
    "httptools": {"apiserver/client"},  # client of virt-api, virt-controller, virt-handler
    "aiohttp": {"controller/serving", "handler/streams", "apiserver/kubectl"},  # server; client of the plugin
    "http.client": {"importer"},  # only the standard library
    "websockets": {"apiserver/endpoints", "apiserver/kubectl"},  # streams after HTTP
    "hpack": {"storage/grpc"},  # client of virt-api
    "grpclib": {"handler/devices"},  # server and client of the kubelet
    "grpc": set[str](),  # only tests have it
    "grpc_tools": {"storage/grpc", "handler/devices"},  # generates stubs
}
OTHERS = ("h11", "h2", "httpx", "requests", "urllib3", "wsproto", "http.server", "urllib.request", "kubernetes")


@functools.cache
def imports() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for path in modules():
        package = "/".join(path.relative_to(ROOT).parts[:-1][:2])
        found.setdefault(package, set()).update(imported(ast.parse(path.read_text(encoding="utf-8"))))
    return found


def imported(tree: ast.Module) -> Iterator[str]:
    for node in statements(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def holders(library: str) -> set[str]:
    return {package for package, names in imports().items() if any(f"{name}.".startswith(f"{library}.") for name in names)}


@pytest.mark.parametrize(("library", "allowed"), [*HOLDERS.items(), *((each, set()) for each in OTHERS)], ids=[*HOLDERS, *OTHERS])
def test_a_protocol_is_spoken_where_it_was_decided(library: str, allowed: set[str]) -> None:
    assert holders(library) == allowed
