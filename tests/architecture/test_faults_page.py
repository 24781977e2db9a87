from __future__ import annotations

import re
import subprocess

from tests.cuts import table
from tests.cuts.description import OPERATIONS, cuts, steps
from tests.testbed import layout


def test_rows_and_columns_are_those_of_the_description() -> None:
    found = table.axes(table.DOCUMENT.read_text())

    assert {name: axes for name, axes in found.items() if name in OPERATIONS} == {
        operation: ([each.name for each in cuts(operation)], [each.name for each in steps(operation)]) for operation in OPERATIONS
    }


def test_commits_of_the_run_are_ancestors_and_count_its_cases() -> None:
    document = table.DOCUMENT.read_text()
    made = re.findall(r"([0-9a-f]{7,}) \((\d+) cases\)", document)
    assert sum(int(count) for _commit, count in made) == len(table.read(document))
    for commit, _count in made:
        command = ["git", "merge-base", "--is-ancestor", commit, "HEAD"]
        done = subprocess.run(command, check=False, cwd=layout.REPOSITORY, capture_output=True, text=True)
        assert done.returncode == 0, f"{commit} is no commit that this tree has behind it: {done.stderr}"
