from __future__ import annotations

from typing import Any

import pytest

from apiserver.apis.virt.spec import downward_api

VM: dict[str, Any] = {
    "metadata": {
        "name": "vm1",
        "namespace": "acc",
        "uid": "u-1",
        "labels": {"b": "2", "a.c/d": ""},
        "annotations": {"note": 'a "b"\n\u00e4\u0001', downward_api.MANIFEST: "{}"},
    }
}


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("metadata.name", "vm1"),
        ("metadata.namespace", "acc"),
        ("metadata.uid", "u-1"),
        ("metadata.labels", 'a.c/d=""\nb="2"'),
        ("metadata.annotations", 'note="a \\"b\\"\\n\u00e4\\u0001"'),
        ("metadata.labels['b']", "2"),
        ("metadata.labels['note']", ""),
        ("metadata.annotations['note']", 'a "b"\n\u00e4\u0001'),
        (f"metadata.annotations['{downward_api.MANIFEST}']", "{}"),
        ("metadata.annotations['b']", ""),
        ("spec.nodeName", ""),
    ],
)
def test_a_field_is_text(field: str, expected: str) -> None:
    assert downward_api.value(VM, field) == expected
    assert downward_api.value({"metadata": {"annotations": downward_api.annotations_read(VM, [field])}}, field) == (
        expected if "annotations" in field else downward_api.value({"metadata": {}}, field)
    )


def test_missing_downward_api_fields_are_empty() -> None:
    assert {downward_api.value({}, each) for each in downward_api.FIELDS} == {""}
