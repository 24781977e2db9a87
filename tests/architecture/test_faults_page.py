"""docs/faults.md has a row for each cut and a column for each step that tests/cuts describes."""

from __future__ import annotations

from tests.cuts import table
from tests.cuts.description import OPERATIONS, cuts, steps


def test_rows_and_columns_are_those_of_the_description() -> None:
    found = table.axes(table.DOCUMENT.read_text())

    assert {name: axes for name, axes in found.items() if name in OPERATIONS} == {
        operation: ([each.name for each in cuts(operation)], [each.name for each in steps(operation)]) for operation in OPERATIONS
    }
