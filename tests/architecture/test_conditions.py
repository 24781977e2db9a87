from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from apiserver.apis.virt.lifecycle import conditions
from apiserver.apis.virt.v1alpha1 import types

ROOT = Path(__file__).parents[2]
OF_A_TYPE = frozenset({"condition", "new_condition", "without_condition", "is_true", "a_condition"})


def _named(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.Call) and len(node.args) > 1:
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
        if name in OF_A_TYPE:
            yield node.args[1]
    if isinstance(node, ast.Dict):
        yield from (
            value for key, value in zip(node.keys, node.values, strict=True) if isinstance(key, ast.Constant) and key.value == "type"
        )


def _used() -> set[str]:
    found = set()
    for package in ("apiserver", "controller", "handler"):
        for file in (ROOT / package).rglob("*.py"):
            text = file.read_text(encoding="utf-8")
            for node in ast.walk(ast.parse(text)) if re.search(r"\b(?:words|conditions)\b", text) else ():
                for each in _named(node):
                    if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id in ("words", "conditions"):
                        found.add(str(getattr(conditions, each.attr)))
    return found


def test_every_condition_type_in_the_code_is_documented() -> None:
    assert len(set(conditions.TYPES)) == len(conditions.TYPES)
    assert _used() == set(conditions.TYPES)
    explained = types.VirtualMachineStatus.model_fields["conditions"].description or ""
    assert set(explained.partition(":")[0].split(", ")) == set(conditions.TYPES)
