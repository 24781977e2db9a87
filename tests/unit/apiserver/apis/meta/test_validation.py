from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.apis.meta import names, objectmeta, validation
from apiserver.apis.meta.validation import Path

PATH = Path("spec").child("replicas")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            validation.invalid(PATH, -1, "must be greater than or equal to 0"),
            "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
        ),
        (validation.invalid(PATH, "x", "is bad"), 'spec.replicas: Invalid value: "x": is bad'),
        (validation.invalid(PATH, True, "is bad"), "spec.replicas: Invalid value: true: is bad"),
        (validation.invalid(PATH, {"a": [1, None]}, "is bad"), 'spec.replicas: Invalid value: {"a":[1,null]}: is bad'),
        (
            validation.invalid(PATH, 'tab\t "q" \x00 \u2028 é', "is bad"),
            'spec.replicas: Invalid value: "tab\\t \\"q\\" \\x00 \\u2028 é": is bad',
        ),
        (validation.type_invalid(PATH, "x", "must be an integer"), 'spec.replicas: Invalid value: "x": must be an integer'),
        (validation.required(PATH), "spec.replicas: Required value"),
        (validation.required(PATH, "why"), "spec.replicas: Required value: why"),
        (validation.not_supported(PATH, "x", ("a", "b")), 'spec.replicas: Unsupported value: "x": supported values: "a", "b"'),
        (validation.duplicate(PATH.index(3).key("k"), "x"), 'spec.replicas[3][k]: Duplicate value: "x"'),
        (validation.forbidden(PATH, "why"), "spec.replicas: Forbidden: why"),
        (validation.too_long(PATH, 1), "spec.replicas: Too long: may not be more than 1 byte"),
        (validation.too_long(PATH, 63), "spec.replicas: Too long: may not be more than 63 bytes"),
        (validation.too_many(PATH, 3, 1), "spec.replicas: Too many: 3: must have at most 1 item"),
        (validation.unknown_field("spec.foo"), 'spec.foo: Forbidden: unknown field "spec.foo"'),
    ],
)
def test_a_field_error_speaks_gos_grammar(error: validation.FieldError, text: str) -> None:
    assert str(error) == text


def test_invalid_names_every_cause_at_once() -> None:
    found = [validation.invalid(PATH, -1, "must be greater than or equal to 0"), validation.required(Path("spec").child("domain"))]
    body = validation.to_invalid(found, group="kubevirt.io", kind="VirtualMachine", name="vm1").to_json()
    assert body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'VirtualMachine.kubevirt.io "vm1" is invalid: [spec.replicas: Invalid value: -1: must be greater than or equal to 0, '
        "spec.domain: Required value]",
        "reason": "Invalid",
        "details": {
            "name": "vm1",
            "group": "kubevirt.io",
            "kind": "VirtualMachine",
            "causes": [
                {
                    "reason": "FieldValueInvalid",
                    "message": "Invalid value: -1: must be greater than or equal to 0",
                    "field": "spec.replicas",
                },
                {"reason": "FieldValueRequired", "message": "Required value", "field": "spec.domain"},
            ],
        },
        "code": 422,
    }


def test_a_single_cause_stands_without_brackets() -> None:
    error = validation.to_invalid([validation.required(PATH)], group="", kind="Pod", name="p")
    assert error.message == 'Pod "p" is invalid: spec.replicas: Required value'


def test_an_error_does_not_send_a_huge_value_back() -> None:
    assert len(str(validation.invalid(PATH, "x" * 10_000_000, "is bad"))) < 2000
    assert len(str(validation.invalid(PATH, ["x"] * 100_000, "is bad"))) < 2000


def test_an_error_names_a_bounded_number_of_causes() -> None:
    found = [validation.required(PATH.index(position)) for position in range(100_000)]
    error = validation.to_invalid(found, group="", kind="Pod", name="p")
    assert len(error.details.causes) == 200
    assert error.message.endswith(", and 99800 more]")


def _meta(**fields: Any) -> dict[str, Any]:
    return {"name": "vm1", "namespace": "acc", **fields}


@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        ({"namespace": "acc"}, "metadata.name: Required value: name or generateName is required"),
        (
            _meta(name="A_b"),
            'metadata.name: Invalid value: "A_b": a lowercase RFC 1123 subdomain must consist of '
            "lower case alphanumeric characters, '-' or "
            "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
            r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
        ),
        ({"name": "a"}, "metadata.namespace: Required value"),
        (
            _meta(labels={"a": "x y"}),
            'metadata.labels: Invalid value: "x y": a valid label must be an empty string or consist '
            "of alphanumeric characters, '-', '_' or "
            "'.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for "
            "validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
        ),
        (_meta(labels={"a": "x" * 64}), f'metadata.labels: Invalid value: "{"x" * 64}": must be no more than 63 bytes'),
        (_meta(labels={"/a": ""}), 'metadata.labels: Invalid value: "/a": prefix part must be non-empty'),
        (_meta(labels={"b/" + "a" * 64: ""}), f'metadata.labels: Invalid value: "b/{"a" * 64}": name part must be no more than 63 bytes'),
        (_meta(annotations={"a": "x" * 262_144}), "metadata.annotations: Too long: may not be more than 262144 bytes"),
        (
            _meta(finalizers=["orphan", "foregroundDeletion"]),
            'metadata.finalizers: Invalid value: ["orphan","foregroundDeletion"]: finalizer orphan and '
            "foregroundDeletion cannot be both set",
        ),
        (
            _meta(ownerReferences=[{"apiVersion": "apps/", "kind": "A", "name": "a", "uid": "1"}]),
            'metadata.ownerReferences.apiVersion: Invalid value: "apps/": version must not be empty',
        ),
        (
            _meta(ownerReferences=[{"apiVersion": "v1", "kind": "A", "name": "a"}]),
            'metadata.ownerReferences.uid: Invalid value: "": must not be empty',
        ),
        (
            _meta(ownerReferences=[{"apiVersion": "v1", "kind": "Event", "name": "a", "uid": "1"}]),
            "metadata.ownerReferences: Invalid value: "
            '{"apiVersion":"v1","kind":"Event","name":"a","uid":"1"}: /v1, Kind=Event is disallowed '
            "from being an owner",
        ),
        (
            _meta(ownerReferences=[{"apiVersion": "v1", "kind": "A", "name": n, "uid": n, "controller": True} for n in "ab"]),
            'metadata.ownerReferences: Invalid value: [{"apiVersion":"v1","kind":"A","name":"a","uid":"a","controller":true},'
            '{"apiVersion":"v1","kind":"A","name":"b","uid":"b","controller":true}]: Only one reference can have Controller set to true. '
            'Found "true" in references for A/a and A/b',
        ),
    ],
)
def test_wrong_metadata_is_told_in_apimachinerys_words(metadata: dict[str, Any], text: str) -> None:
    assert [str(each) for each in objectmeta.validate(metadata, namespaced=True)] == [text]


def test_right_metadata_is_let_through() -> None:
    metadata = _meta(
        labels={"app.kubernetes.io/name": "a", "b": ""},
        annotations={"Example.com/UPPER": "x"},
        finalizers=["kubevirt.io/virtual-machine", "foregroundDeletion"],
        ownerReferences=[{"apiVersion": "apps/v1", "kind": "A", "name": "a", "uid": "1", "controller": True, "blockOwnerDeletion": True}],
        generateName="my-vm-",
    )
    assert objectmeta.validate(metadata, namespaced=True) == []
    assert objectmeta.read(metadata) == ([], [])


def test_type_errors_and_unknown_fields_of_metadata_are_named() -> None:
    metadata = {
        "name": 5,
        "foo": 1,
        "labels": {"a": 1, "b": None},
        "finalizers": ["a/b", "a/b", 5],
        "managedFields": [{"manager": "m" * 129}, {"manager": "m\x01"}, {"subresource": "s" * 257}],
        "ownerReferences": [{"uid": "1", "bar": 1, "controller": "yes"}],
        "creationTimestamp": None,
        "deletionTimestamp": "yesterday",
        "generation": 2**63,
        "annotations": [],
    }
    unknown, found = objectmeta.read(metadata)
    assert unknown == ["metadata.foo", "metadata.ownerReferences[0].bar"]
    assert [str(each) for each in found] == [
        "metadata.name: Invalid value: 5: must be a string",
        "metadata.labels[a]: Invalid value: 1: must be a string",
        "metadata.finalizers[2]: Invalid value: 5: must be a string",
        "metadata.managedFields[0].manager: Too long: may not be more than 128 bytes",
        'metadata.managedFields[1].manager: Invalid value: "m\\x01": invalid character U+0001 (at position 1)',
        "metadata.managedFields[2].subresource: Too long: may not be more than 256 bytes",
        'metadata.ownerReferences[0].controller: Invalid value: "yes": must be a boolean',
        'metadata.deletionTimestamp: Invalid value: "yesterday": must be an RFC 3339 time such as 2006-01-02T15:04:05Z',
        "metadata.generation: Invalid value: 9223372036854775808: must be a 64-bit integer",
        "metadata.annotations: Invalid value: []: must be an object",
    ]
    assert metadata["labels"] == {"a": 1, "b": ""}
    assert "foo" not in metadata
    assert "creationTimestamp" not in metadata
    assert [str(each) for each in objectmeta.read("x")[1]] == ['metadata: Invalid value: "x": must be an object']


def test_stored_managed_fields_entries_are_read_without_mutation() -> None:
    entry = {"manager": "m", "unknown": 1, "time": None}
    metadata = {"name": "a", "managedFields": [entry, {"manager": "n"}]}
    assert objectmeta.read(metadata, stored={"managedFields": [entry]})[0] == ["metadata.managedFields[0].unknown"]
    assert metadata["managedFields"] == [{"manager": "m"}, {"manager": "n"}]
    assert entry == {"manager": "m", "unknown": 1, "time": None}


def test_an_update_may_not_change_who_the_object_is() -> None:
    old = _meta(uid="1", resourceVersion="5", creationTimestamp="2026-01-01T00:00:00Z")
    assert objectmeta.validate_update({**old, "labels": {"a": "b"}}, old) == []
    new = {**old, "name": "other", "uid": "2", "resourceVersion": ""}
    assert [str(each) for each in objectmeta.validate_update(new, old)] == [
        'metadata.resourceVersion: Invalid value: "": must be specified for an update',
        'metadata.name: Invalid value: "other": field is immutable',
        'metadata.uid: Invalid value: "2": field is immutable',
    ]


def test_update_reports_added_annotations_and_total_size() -> None:
    known = {"from-another-time/with/slashes": "1", "a": "2"}
    old = _meta(resourceVersion="5", annotations=known)
    assert objectmeta.validate_update({**old, "annotations": {**known, "a": "3"}}, old) == []
    new = {**old, "annotations": {**known, "of/this/time": "x" * 262_144}}
    assert [each.path for each in objectmeta.validate_update(new, old)] == ["metadata.annotations", "metadata.annotations"]
    assert str(objectmeta.validate_update(new, old)[-1]) == "metadata.annotations: Too long: may not be more than 262144 bytes"


def test_a_terminating_object_gets_no_new_finalizers() -> None:
    old = _meta(resourceVersion="5", deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["a/b"])
    assert objectmeta.validate_update({**old, "finalizers": []}, old) == []
    assert [str(each) for each in objectmeta.validate_update({**old, "finalizers": ["a/b", "c/d"]}, old)] == [
        "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers "
        '[]string{"c/d"}'
    ]


@given(st.text("abAB019-._/ é", max_size=70))
def test_name_rules_agree_with_their_published_expressions(name: str) -> None:
    label = re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name) is not None and len(name) <= 63
    assert (names.label_errors(name) == []) == label
    value = re.fullmatch(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?", name) is not None and len(name) <= 63
    assert (names.label_value_errors(name) == []) == value


@given(st.text("ab-é", max_size=300))
def test_a_generated_name_is_the_base_and_five_letters(base: str) -> None:
    name = names.generate(base)
    assert len(name.encode()) <= 63
    assert base.startswith(name[:-5])
    assert set(name[-5:]) <= set(names.GENERATED_ALPHABET)


def test_absurdly_long_names_are_refused_quickly() -> None:
    assert names.subdomain_errors("a-" * 1_000_000) == ["must be no more than 253 bytes"]
