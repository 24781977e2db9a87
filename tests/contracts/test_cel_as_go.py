from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.reference_cel import table
from tests.reference_cel.compare import compare
from tests.reference_cel.expressions import Generator
from tests.reference_cel.program import Reference

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def reference() -> Iterator[Reference]:
    with Reference() as running:
        yield running


@pytest.mark.parametrize("section", table.SECTIONS)
def test_the_table_gives_the_same_values_and_errors(reference: Reference, section: str) -> None:
    differences = [text for text in table.SECTIONS[section] if compare(reference, text, table.VARIABLES).verdict == "different"]
    assert differences == []


def test_generated_expressions_give_the_same_values_and_errors(reference: Reference) -> None:
    """Costs are never below Go's, except those hidden by errors."""
    counts: dict[str, int] = {}
    for number in range(3000):
        text = Generator(number).expression()
        found = compare(reference, text, table.VARIABLES)
        counts[found.verdict] = counts.get(found.verdict, 0) + 1
        assert found.verdict != "different", (text, found.ours, found.theirs)
    assert counts["same"] > 10 * counts["cost"] / 2
    assert counts["same"] > 1500
