from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.mutants import environment
from tests.testbed import layout

MODULE: Final = "apiserver/apis/virt/lifecycle/phases.py"
TESTS: Final = "tests/unit/apiserver/apis/virt/test_phases.py"


def test_worker_distinguishes_noticed_and_unnoticed_changes() -> None:
    source = Path(layout.REPOSITORY, MODULE).read_text(encoding="utf-8")
    changed = source.replace("WITH_POD - {SCHEDULING}", "WITH_POD")
    assert changed != source
    answers = subprocess.run(
        [sys.executable, "-m", "tests.mutants.worker", MODULE, TESTS],
        input="".join(json.dumps({"source": each}) + "\n" for each in (source, changed)),
        capture_output=True,
        text=True,
        check=True,
        cwd=layout.REPOSITORY,
        env=environment.variables(layout.REPOSITORY),
    ).stdout.splitlines()
    assert [json.loads(each)["outcome"] for each in answers] == ["ready", "survived", "killed"], answers
