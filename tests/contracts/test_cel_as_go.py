"""Our CEL agrees with cel-go in Kubernetes' environment."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.oracle_cel import table
from tests.oracle_cel.compare import compare
from tests.oracle_cel.expressions import Generator
from tests.oracle_cel.program import Oracle

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    with Oracle() as running:
        yield running


@pytest.mark.parametrize("section", table.SECTIONS)
def test_the_table_gives_the_same_values_and_errors(oracle: Oracle, section: str) -> None:
    """ADM-04: every function of Kubernetes' environment."""
    differences = [text for text in table.SECTIONS[section] if compare(oracle, text, table.VARIABLES).verdict == "different"]
    assert differences == []


def test_generated_expressions_give_the_same_values_and_errors(oracle: Oracle) -> None:
    """ADM-04: values and errors agree; costs are never below Go's, except those hidden by errors."""
    counts: dict[str, int] = {}
    for number in range(3000):
        text = Generator(number).expression()
        found = compare(oracle, text, table.VARIABLES)
        counts[found.verdict] = counts.get(found.verdict, 0) + 1
        assert found.verdict != "different", (text, found.ours, found.theirs)
    assert counts["same"] > 10 * counts["cost"] / 2
    assert counts["same"] > 1500
