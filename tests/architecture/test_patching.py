"""Patches of our own modules in tests: in no file but the listed ones, and there no more than listed.

A patched function or constant is called as its author never wrote it, and a test of it goes on passing when the code no longer asks what
was patched. What a test has to change is a parameter of the class or the function, with the production's value as its default, or a port
that is passed in. ``monkeypatch`` stays for the environment (``setenv``, ``delenv``, ``chdir``). The list shrinks: who takes a patch away
writes the new number, or takes the line away; a file that is not in it may have none.
"""

from __future__ import annotations

import ast
from collections import Counter
from typing import Final

import pytest

from tests.architecture.test_structure import ROOT

PATCHES: Final = {
    "component/apiserver/conftest.py": 1,
    "component/apiserver/test_apply.py": 1,
    "component/apiserver/test_audit.py": 1,
    "component/apiserver/test_checklist.py": 2,
    "component/apiserver/test_hooks.py": 3,
    "component/apiserver/test_http.py": 3,
    "component/apiserver/test_node_restriction.py": 1,
    "component/apiserver/test_objects.py": 2,
    "component/apiserver/test_operations.py": 2,
    "component/apiserver/test_small_rows.py": 6,
    "component/apiserver/test_storage_rows.py": 2,
    "component/apiserver/test_stream_limits.py": 3,
    "component/apiserver/test_stream_rights.py": 3,
    "component/apiserver/test_unreadable.py": 2,
    "component/apiserver/test_unverified_clients.py": 3,
    "component/handler/test_carrier.py": 1,
    "component/handler/test_planted_faults.py": 1,
    "component/launcher/test_passt.py": 1,
    "component/launcher/test_virtiofs.py": 1,
    "component/test_kubectl_virt_bad_days.py": 1,
    "unit/handler/pods/test_hanging.py": 1,
    "unit/launcher/hypervisor/test_agent_questions.py": 2,
    "unit/launcher/main/conftest.py": 1,
    "unit/launcher/main/test_blank_disks.py": 5,
    "unit/launcher/main/test_firmware_state.py": 1,
    "unit/launcher/main/test_unusable.py": 1,
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
