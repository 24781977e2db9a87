from __future__ import annotations

import copy
from typing import Any

import pytest

from apiserver.registry.generic.options import Caller, WriteOptions
from apiserver.registry.generic.ownership import keep_times


@pytest.mark.parametrize(
    ("agent", "manager"),
    [
        ("kubectl/v1.36.3 (linux/amd64) kubernetes/abc", "kubectl"),
        ("curl", "curl"),
        ("", ""),
        ("/odd", ""),
        ("a\x07b\x1bc/1", "abc"),
        ("x" * 200, "x" * 128),
        ("ü" * 100, "ü" * 64),
    ],
)
def test_fm_01_who_names_no_manager_is_known_by_the_user_agent(agent: str, manager: str) -> None:
    assert WriteOptions(caller=Caller(agent=agent)).manager == manager
    assert WriteOptions(field_manager="m", caller=Caller(agent=agent)).manager == "m"


def an_object(time: str, size: int = 1, **fields: Any) -> dict[str, Any]:
    entry = {
        "manager": "a",
        "operation": "Update",
        "apiVersion": "g/v1",
        "time": time,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields or {"f:spec": {}},
    }
    return {"metadata": {"name": "n", "resourceVersion": "5", "managedFields": [entry]}, "spec": {"size": size}}


def test_ssa_13_times_alone_are_no_change() -> None:
    old, new = an_object("2026-01-01T00:00:00Z"), an_object("2026-01-01T00:00:09Z")
    keep_times(new, old)
    assert new == old


@pytest.mark.parametrize(
    "new",
    [
        an_object("2026-01-01T00:00:09Z", size=2),
        an_object("2026-01-01T00:00:09Z", f_else={}),
        {**an_object("2026-01-01T00:00:09Z"), "status": {}},
        {**an_object("2026-01-01T00:00:09Z"), "metadata": {**an_object("2026-01-01T00:00:09Z")["metadata"], "labels": {"a": "b"}}},
        {"metadata": {"name": "n"}, "spec": {"size": 1}},
    ],
)
def test_ssa_13_times_are_kept_where_other_fields_changed(new: dict[str, Any]) -> None:
    before = copy.deepcopy(new)
    keep_times(new, an_object("2026-01-01T00:00:00Z"))
    assert new == before
