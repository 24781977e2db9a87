from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.architecture.test_structure import ROOT, parsed
from tests.testbed import project_images

MAKER: Final = "certs/contexts.py"
MAKES: Final = {
    "SSLContext",
    "create_default_context",
    "_create_default_https_context",
    "_create_stdlib_context",
    "_create_unverified_context",
}


def makers(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="ssl"), attr=name)) if name in MAKES:
                yield node.lineno
            case ast.ImportFrom(module="ssl", names=names) if MAKES & {each.name for each in names}:
                yield node.lineno
            case ast.keyword(arg="ssl", value=ast.Constant(value=True)):
                yield node.value.lineno
            case ast.Call(func=ast.Attribute(attr="HTTPSConnection") | ast.Name(id="HTTPSConnection"), keywords=given) if not any(
                each.arg == "context" for each in given
            ):
                yield node.lineno


def test_only_one_module_makes_tls_contexts() -> None:
    found = {str(path.relative_to(ROOT)) for path, tree in parsed("ssl|HTTPSConnection") if list(makers(tree))}

    assert found == {MAKER}


def test_every_way_to_make_a_context_is_seen() -> None:
    ways = (
        "ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)",
        "ssl.create_default_context()",
        "from ssl import SSLContext",
        "await asyncio.open_connection('a', 1, ssl=True)",
        "http.client.HTTPSConnection('a')",
    )

    assert [list(makers(ast.parse(each))) for each in ways] == [[1]] * len(ways)
    assert not list(makers(ast.parse("http.client.HTTPSConnection('a', context=made)\ndef f(tls: ssl.SSLContext) -> None: ...")))


def test_launcher_image_contains_the_importers_context_maker() -> None:
    sources = next(each.sources for each in project_images.PROCESSES if each.name == "virt-launcher")

    assert any(Path(MAKER).is_relative_to(each) for each in sources)
