from __future__ import annotations

from typing import Any

import pytest

from apiserver.apis.virt.lifecycle import progress
from apiserver.apis.virt.v1alpha1 import types


@pytest.mark.parametrize(
    ("phase", "found", "percent"),
    [
        ("Running", None, None),
        ("Running", {}, None),
        ("Running", {"totalBytes": 0, "remainingBytes": 0}, None),
        ("Running", {"totalBytes": 1000, "remainingBytes": 1000}, 0),
        ("Running", {"totalBytes": 1000, "remainingBytes": 521}, 47),
        ("Running", {"totalBytes": 1000, "remainingBytes": 1}, 99),
        ("Running", {"totalBytes": 1000, "remainingBytes": 0}, 99),
        ("Running", {"totalBytes": 1000, "remainingBytes": 9000}, 0),
        ("Failed", {"totalBytes": 1000, "remainingBytes": 500}, 50),
        ("Succeeded", {"totalBytes": 1000, "remainingBytes": 500}, 100),
        ("Succeeded", None, 100),
    ],
)
def test_only_what_succeeded_is_whole(phase: str, found: dict[str, Any] | None, percent: int | None) -> None:
    assert progress.percent({"status": {"phase": phase, "progress": found}}) == percent


def test_numbers_are_all_fields_but_the_time() -> None:
    fields = {each.alias or name for name, each in types.MigrationProgress.model_fields.items()}
    assert fields == {*progress.NUMBERS, "lastUpdateTime"}
