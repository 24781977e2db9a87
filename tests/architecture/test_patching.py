"""Patches of our own modules in tests: in no file but the listed ones, and there no more than listed.

A patched function or constant is called as its author never wrote it, and a test of it goes on passing when the code no longer asks what
was patched. What a test has to change is a parameter of the class or the function, with the production's value as its default, or a port
that is passed in. ``monkeypatch`` stays for the environment (``setenv``, ``delenv``, ``chdir``). What happens at a system call
is ``tests.system_calls``' to make. The list says why each that is left cannot be had otherwise; a file that is not in it may have none.
"""

from __future__ import annotations

import ast
from collections import Counter
from typing import Final

import pytest

from tests.architecture.test_structure import ROOT

PATCHES: Final = {
    "component/apiserver/conftest.py": 1,  # a guard around every test: what a write replaced stays decoded, so that who changed it is seen
    "component/handler/test_planted_faults.py": 1,  # faults of ours that nobody has thought of, in any part: a port for them would be one
    "fakes/pod.py": 1,  # the pod's file system, whose paths are in the domain's XML, too: a parameter of every module of virt-launcher
}
"""Uses of ``setattr``, ``delattr`` and ``setitem`` of a ``MonkeyPatch``, and of ``unittest.mock``'s ``patch``, by file below ``tests``."""
_OF_MONKEYPATCH: Final = frozenset({"setattr", "delattr", "setitem", "delitem"})


def is_patch(node: ast.AST) -> bool:
    """Return whether a node changes what another module, class or object has. ``setattr`` as a method is MonkeyPatch's alone."""
    if isinstance(node, ast.ImportFrom):
        return node.module == "unittest.mock"  # whatever is used by its bare name then
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    return node.func.attr in _OF_MONKEYPATCH or ast.unparse(node.func).startswith(("mock.patch", "unittest.mock.patch"))


def patches(source: str) -> int:
    """Return how often a file patches."""
    return sum(map(is_patch, ast.walk(ast.parse(source))))


def test_what_a_test_changes_is_a_parameter() -> None:
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
