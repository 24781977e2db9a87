from __future__ import annotations

import json
from typing import Any

import pytest

from apiserver.admission.webhook import errors, review
from apiserver.admission.webhook.review import VersionedAttributes, WrongAnswer
from apiserver.apis.meta.resources import Resource
from apiserver.apis.meta.users import User
from apiserver.registry.generic.admission import Attributes
from tests.fakes.admission import asking

THINGS = Resource("g.test", "v1", "things", "Thing")
OLDER = Resource("g.test", "v1beta1", "things", "Thing")


def asked(attributes: Attributes, resource: Resource = THINGS, speaks: str = "v1") -> Any:
    versioned = VersionedAttributes(attributes, resource, attributes.obj, attributes.old)
    return json.loads(review.question("u1", versioned, speaks))


def answered(response: Any, *, mutating: bool = True, speaks: str = "v1", **more: Any) -> review.Answer:
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response} | more
    return review.answer(json.dumps(body).encode(), "u1", speaks, mutating=mutating)


def test_a_question_about_a_subresource_of_an_equivalent_version() -> None:
    user = User("eve", ("a", "b"), "7", {"k": ("v", "w")})
    body = asked(asking("UPDATE", THINGS, "status", "ns", "t1", user, {"spec": 1}, {"spec": 0}, {"kind": "UpdateOptions"}), OLDER)
    resource = {"group": "g.test", "version": "v1", "resource": "things"}
    kind = {"group": "g.test", "version": "v1", "kind": "Thing"}
    assert body == {
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "u1",
            "kind": kind | {"version": "v1beta1"},
            "resource": resource | {"version": "v1beta1"},
            "subResource": "status",
            "requestKind": kind,
            "requestResource": resource,
            "requestSubResource": "status",
            "name": "t1",
            "namespace": "ns",
            "operation": "UPDATE",
            "userInfo": {"username": "eve", "uid": "7", "groups": ["a", "b"], "extra": {"k": ["v", "w"]}},
            "object": {"spec": 1},
            "oldObject": {"spec": 0},
            "dryRun": False,
            "options": {"kind": "UpdateOptions"},
        },
    }


def test_empty_fields_are_omitted_except_objects_and_options() -> None:
    request = asked(asking("DELETE", THINGS), speaks="v1beta1")["request"]
    assert [key for key in request if request[key] is None] == ["object", "oldObject", "options"]
    assert request.keys() & {"name", "namespace", "subResource", "requestSubResource"} == set()


def test_the_kind_of_a_scale_is_its_own() -> None:
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale"}
    request = asked(asking("UPDATE", THINGS, "scale", "ns", "t1", obj=scale, old=scale))["request"]
    assert request["kind"] == request["requestKind"] == {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    assert request["resource"]["resource"] == "things"


def test_the_first_version_that_both_know_is_spoken() -> None:
    assert review.version(["v2", "v1beta1", "v1"]) == "v1beta1"
    assert review.version(["v2"]) is None


def test_an_answer() -> None:
    given = answered(
        {
            "uid": "u1", "allowed": True, "patch": "W10=", "patchType": "JSONPatch", "warnings": ["w"], "auditAnnotations": {"a": "b"},
            "status": {"message": "m", "code": 418},
        }
    )  # fmt: skip
    assert (given.allowed, given.patch, given.patch_type, given.warnings, given.annotations) == (
        True,
        b"[]",
        "JSONPatch",
        ("w",),
        {"a": "b"},
    )
    assert not answered({"uid": "u1"}).allowed


@pytest.mark.parametrize(
    "status",
    [
        {"code": 2**40}, {"code": True}, {"message": 1}, {"reason": []}, {"details": []}, {"details": {"retryAfterSeconds": "1"}},
        {"details": {"causes": {}}}, {"details": {"causes": [1]}}, {"details": {"causes": [{"field": 1}]}}, {"details": {"name": 1}},
        [], "x",
    ],
    ids=str,
)  # fmt: skip
def test_a_misshapen_status_is_no_answer(status: Any) -> None:
    with pytest.raises(WrongAnswer):
        answered({"uid": "u1", "status": status})


@pytest.mark.parametrize("value", [b"", b"{", b"null", b"[]", b"1", b'{"response":[]}', b"\xff", b"[" * 100_000])
def test_malformed_answers_raise_only_wrong_answer(value: bytes) -> None:
    with pytest.raises(WrongAnswer):
        review.answer(value, "u1", "v1", mutating=True)


@pytest.mark.parametrize(
    ("result", "message", "code"),
    [
        (None, 'admission webhook "w" denied the request without explanation', 400),
        ({}, 'admission webhook "w" denied the request without explanation', 400),
        ({"reason": "Forbidden"}, 'admission webhook "w" denied the request: Forbidden', 400),
        ({"message": "m", "reason": "Forbidden"}, 'admission webhook "w" denied the request: m', 400),
        ({"code": 399}, 'admission webhook "w" denied the request without explanation', 400),
        ({"code": -1}, 'admission webhook "w" denied the request without explanation', 400),
        ({"code": 500}, 'admission webhook "w" denied the request without explanation', 500),
        ({"code": 1_000_000}, 'admission webhook "w" denied the request without explanation', 400),
    ],
)
def test_a_refusal_is_never_a_success(result: Any, message: str, code: int) -> None:
    refusal = errors.denied("w", result)
    assert (refusal.message, refusal.code) == (message, code)
    assert (refusal.to_json()["message"], refusal.to_json()["code"], refusal.to_json()["status"]) == (message, code, "Failure")


def test_a_status_of_its_own_is_kept() -> None:
    assert errors.denied("w", {"status": "custom"}).to_json()["status"] == "custom"
    details = {"name": "n", "kind": "k", "causes": [{"reason": "R", "message": "m", "field": "f"}]}
    refusal = errors.denied("w", {"reason": "Teapot", "details": details, "code": 418})
    assert refusal.to_json()["details"] == details
    assert (refusal.to_json()["reason"], refusal.details.causes[0].field) == ("Teapot", "f")
