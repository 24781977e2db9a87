from __future__ import annotations

from typing import Any

import pytest

from apiserver.apis.meta.validation import Path
from apiserver.apis.virt.v1alpha1.guest_commands import validate_lifecycle


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        (None, []),
        ({}, []),
        ({"preStop": {"exec": {"command": ["sync"]}}}, []),
        ({"preStop": {}}, ["spec.lifecycle.preStop.exec: Required value"]),
        ({"preStop": {"exec": {"command": []}}}, ["spec.lifecycle.preStop.exec.command: Required value: name a program"]),
    ],
)
def test_a_hook_names_a_program(given: Any, wrong: list[str]) -> None:
    assert [str(each) for each in validate_lifecycle({"lifecycle": given}, Path("spec"))] == wrong
