from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator

from tests.architecture.test_book import sections
from tests.architecture.test_structure import PACKAGES, ROOT, modules, statements

KNOWN = {*sys.stdlib_module_names, "_typeshed"}
BY_IMPORTLIB = {("apiserver.kubectl.kubeconfig", "kubernetes_asyncio")}


def table() -> dict[str, tuple[set[str], set[str]]]:
    section = sections((ROOT / "docs/development/interfaces.md").read_text(encoding="utf-8"))["Imports, package by package"]
    rows = [[re.findall(r"`([\w.]+)`", cell) for cell in line.split("|")[1:4]] for line in section.splitlines() if line.startswith("| `")]
    found: dict[str, tuple[set[str], set[str]]] = {name: (set(), set()) for names, _, _ in rows for name in names}
    for names, ours, others in rows:
        for name in names:
            found[name][0].update(ours)
            found[name][1].update(others)
    return found


def imports() -> Iterator[tuple[str, str]]:
    for path in modules():
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for node in statements(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                start = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
                yield from ((module, start + each.name) for each in node.names)


def test_the_table_says_what_each_package_imports() -> None:
    said = table()
    found: dict[str, tuple[set[str], set[str]]] = {name: (set(), set()) for name in said}
    for names in {*imports(), *BY_IMPORTLIB}:
        importer, imported = (next((row for row in said if f"{name}.".startswith(f"{row}.")), name.partition(".")[0]) for name in names)
        if imported not in {importer, *KNOWN}:
            found[importer][imported.partition(".")[0] not in PACKAGES].add(imported)
    assert found == said
