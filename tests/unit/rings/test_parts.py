from __future__ import annotations

import json

import pytest

from tests import parts

MODULES = [f"test_{number}.py" for number in range(20)]


@pytest.mark.parametrize("of", [1, 2, 3])
def test_each_module_is_in_one_part(of: int) -> None:
    found = [parts.part(number, of, MODULES, {"test_3.py": 9.0, "test_4.py": 2.0}) for number in range(1, of + 1)]
    assert sorted(module for each in found for module in each) == sorted(MODULES)


def test_parts_are_about_equally_long() -> None:
    known = {"test_3.py": 4.0, "test_5.py": 3.0, "test_7.py": 1.0}
    first, second = (parts.part(number, 2, MODULES, known) for number in (1, 2))
    assert "test_3.py" in first
    assert {"test_5.py", "test_7.py"} <= second
    assert len(first) in (8, 9, 10)


def test_parts_do_not_depend_on_the_order() -> None:
    assert parts.part(1, 2, MODULES, {}) == parts.part(1, 2, reversed(MODULES), {})


def test_table_takes_new_figures_and_loses_short_modules() -> None:
    text = parts.written({"b.py": 1.26, "c.py": 0.01}, {"a.py": 3.0, "c.py": 5.0})
    assert json.loads(text) == {"a.py": 3.0, "b.py": 1.3}
