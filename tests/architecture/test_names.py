from __future__ import annotations

import ast
import re
from typing import Final

import pytest

from tests.architecture.test_structure import ROOT

LONGEST: Final = 60
_CANDIDATE: Final = re.compile(rf"\bdef\s+test_\w{{{LONGEST + 1 - len('test_')}}}")


def too_long(source: str) -> list[str]:
    if not _CANDIDATE.search(source):
        return []
    functions = (each for each in ast.walk(ast.parse(source)) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
    return [each.name for each in functions if each.name.startswith("test_") and len(each.name) > LONGEST]


def test_names_of_tests_have_at_most_60_characters() -> None:
    files = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py")}
    found = {name: long for name, text in files.items() if (long := too_long(text))}
    assert not found, "say the behaviour in fewer words"


@pytest.mark.parametrize("length", [LONGEST, LONGEST + 1])
@pytest.mark.parametrize("definition", ["def {}(): ...", "async def {}(): ...", "class T:\n    def {}(self): ..."])
def test_longer_names_are_found(definition: str, length: int) -> None:
    name = "test_".ljust(length, "x")
    assert too_long(definition.format(name)) == ([name] if length > LONGEST else [])
