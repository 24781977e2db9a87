"""Tests patch our own modules only in the listed files, as often as listed.

A patched test passes even if the code no longer calls the patched function.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from typing import Final

import pytest

from tests.architecture.test_structure import ROOT

PATCHES: Final = {
    "component/apiserver/conftest.py": 1,  # replaced objects stay decoded, so it detects changes
    "component/handler/test_planted_faults.py": 1,  # unexpected faults in any part
    "fakes/pod.py": 1,  # the pod's file system: otherwise a parameter of every module of virt-launcher
}
"""Uses of ``MonkeyPatch.setattr`` and the like, by file below ``tests``."""
_OF_MONKEYPATCH: Final = frozenset({"setattr", "delattr", "setitem", "delitem"})
_WORDS: Final = re.compile("|".join((*_OF_MONKEYPATCH, r"\bmock\b")))


def is_patch(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module == "unittest.mock"
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    return node.func.attr in _OF_MONKEYPATCH or ast.unparse(node.func).startswith(("mock.patch", "unittest.mock.patch"))


def patches(source: str) -> int:
    return sum(map(is_patch, ast.walk(ast.parse(source)))) if _WORDS.search(source) else 0


def test_patched_attributes_are_limited_to_the_list() -> None:
    files = {str(path.relative_to(ROOT / "tests")): path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py")}
    found = {name: count for name, text in files.items() if (count := patches(text))}
    more = Counter(found) - Counter(PATCHES)
    assert not more, "make each of these a parameter"
    fewer = Counter(PATCHES) - Counter(found)
    assert not fewer, f"fewer than the list says: write { ({name: found.get(name, 0) for name in fewer}) }"


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("monkeypatch.setattr(module, 'SECONDS', 1)", 1),
        ("with monkeypatch.context() as patched:\n patched.setattr('a.b', 1); patched.delattr('a.c')", 2),
        ("monkeypatch.setitem(module.TABLE, 'key', 1)", 1),
        ("with mock.patch.object(module, 'name'): pass", 1),
        ("with mock.patch('a.b'), unittest.mock.patch('a.c'): pass", 2),
        ("from unittest.mock import patch", 1),
        ("monkeypatch.setenv('HOME', '/'); monkeypatch.delenv('PATH'); monkeypatch.chdir('/')", 0),
        ("setattr(obj, name, value); client.patch(path, body); patch.apply(obj)", 0),
    ],
)
def test_a_patch_is_found(source: str, count: int) -> None:
    assert patches(source) == count
