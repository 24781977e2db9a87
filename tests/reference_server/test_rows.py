from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

import pytest

from tests.reference_server import environment, servers
from tests.reference_server.asking import Answer, Asker
from tests.reference_server.cases import CASES
from tests.reference_server.comparing import judge
from tests.reference_server.rows import Case, Step

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

_SAVED: Final = re.compile(r"\{(\w+)\.(\w+)\}")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Asker, Asker]]:
    with ExitStack() as stack:
        here = stack.enter_context(environment.environment(tmp_path_factory.mktemp("rows"), cluster=False))
        made = []
        for variant in (servers.REFERENCE_DEFAULT, servers.OURS_FLUNDERS):
            server = servers.Server(variant, here)
            stack.callback(server.end)
            server.start()
            made.append(Asker(server.port, here.certificates))
        yield made[0], made[1]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_ours_answers_as_the_reference_server_does(case: Case, both: tuple[Asker, Asker]) -> None:
    reference, ours = (list(_run(case, each)) for each in both)
    found = [
        f"{_name(step)}: {wrong}"
        for step, theirs, own in zip(case.steps, reference, ours, strict=True)
        for wrong in judge(step, theirs, own)
    ]
    assert not found, "\n" + "\n".join(found)


def _run(case: Case, asker: Asker) -> Iterator[Answer]:
    saved: dict[str, dict[str, str]] = {}
    for step in case.steps:
        answer = asker.ask(step, case.name, lambda text: _SAVED.sub(lambda match: saved[match[1]][match[2]], text))
        if step.save:
            assert answer.code < 300, f"{_name(step)}: {answer.code} {answer.text[:300]}"
            metadata = answer.json["metadata"]
            saved[step.save] = {"uid": metadata.get("uid", ""), "rv": metadata["resourceVersion"], "continue": metadata.get("continue", "")}
        yield answer


def _name(step: Step) -> str:
    body = "" if step.body is None else f" {json.dumps(step.body)[:160]}"
    return f"{step.method} {step.path[:120]} [{step.accept}]{body}"
