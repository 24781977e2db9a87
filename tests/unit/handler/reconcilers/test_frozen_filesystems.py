from __future__ import annotations

from typing import Any

import pytest

from handler.reconcilers.guests.frozen_filesystems import WHY, news, with_frozen
from launcher.protocol.messages import Status
from tests.unit.handler.reconcilers.builders import a_vm, an_operation

FROZEN: dict[str, Any] = {"fsFreezeStatus": "frozen"}


def test_the_status_says_what_the_launcher_reports() -> None:
    assert with_frozen({"a": 1}, Status(1, frozen=True)) == {"a": 1, **FROZEN}
    assert with_frozen({"a": 1, **FROZEN}, Status(1)) == {"a": 1}


@pytest.mark.parametrize(
    ("before", "result", "after", "told"),
    [
        ({}, "", {}, ""),
        (FROZEN, "", FROZEN, ""),
        (FROZEN, "", {}, WHY),
        (FROZEN, "Succeeded", {}, ""),
        ({}, "", FROZEN, ""),
    ],
)
def test_a_thaw_without_the_verb_is_news(before: dict[str, Any], result: str, after: dict[str, Any], told: str) -> None:
    thaw = an_operation("t", 2, "Thaw")
    vm = a_vm("Running", operations=[an_operation("f", 1, "Freeze", result="Succeeded"), thaw], **before)
    over = [vm["status"]["operations"][0], {**thaw, **({"result": result} if result else {})}]
    assert news(vm, {"operations": over, **after}) == told
