from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("apiserver", "controller", "handler", "launcher", "importer", "storage", "certs")
VAGUE = {"utils", "util", "common", "helpers", "helper", "misc", "base"}


def modules() -> list[Path]:
    return [path for package in PACKAGES for path in (ROOT / package).rglob("*.py") if "_pb2" not in path.name]


def statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yield all statements, without expressions, which are most of a tree."""
    waiting: list[ast.AST] = [*tree.body]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.stmt):
            yield node
        for inner in ("body", "orelse", "finalbody", "handlers", "cases"):
            waiting += getattr(node, inner, ())


def parsed(containing: str = "") -> Iterator[tuple[Path, ast.Module]]:
    """Yield path and syntax tree of our modules with text that matches this regular expression."""
    for path in modules():
        if re.search(containing, text := path.read_text(encoding="utf-8")):
            yield path, ast.parse(text)


def test_every_module_says_what_it_is_for() -> None:
    assert [str(path.relative_to(ROOT)) for path, tree in parsed() if not ast.get_docstring(tree)] == []


def test_no_module_has_a_name_that_says_nothing() -> None:
    named = {path.stem for path in modules()} | {path.parent.name for path in modules()}

    assert not named & VAGUE


def test_packages_import_nothing_by_themselves() -> None:
    loud = [
        path.relative_to(ROOT)
        for path in modules()
        if path.name == "__init__.py" and any(not isinstance(node, ast.Expr) for node in ast.parse(path.read_text(encoding="utf-8")).body)
    ]

    assert not loud


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("launcher.__main__", ("aiohttp", "pydantic", "apiserver.client", "storage", "grpc", "cryptography")),
        (
            "handler.__main__",
            (
                "pydantic",
                "kubernetes_asyncio",
                "prometheus_client",
                "storage",
                "libvirt",
                "grpc",
                "apiserver.registry",
                "apiserver.server",
                "apiserver.apis.virt.domainxml.grammar",
            ),
        ),
        ("controller.manager.__main__", ("pydantic", "kubernetes_asyncio", "prometheus_client", "storage", "libvirt", "grpc")),
        (
            "apiserver.server.__main__",
            (
                "grpc",
                "kubernetes_asyncio",
                "cryptography",
                "nacl",
                "prometheus_client",
                "jiter",
                "apiserver.cel.compiler",
                "websockets",
                "aiohttp",
                "http.client",
            ),
        ),
        ("apiserver.kubectl.__main__", ("pydantic", "grpc", "storage", "libvirt", "orjson")),
    ],
)
def test_processes_do_not_load_what_they_do_not_need(module: str, heavy: tuple[str, ...]) -> None:
    code = f"import sys, {module}; print([name for name in {heavy!r} if name in sys.modules])"

    loaded = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout

    assert loaded.strip() == "[]"


def test_single_module_creates_admission_attributes() -> None:
    """``Attributes`` must hold objects of the stored version, so other modules may not make them."""
    makers = {str(path.relative_to(ROOT)) for path in modules() if re.search(r"(?<!\w)Attributes\(", path.read_text(encoding="utf-8"))}

    assert makers == {"apiserver/registry/generic/admitting.py"}
