"""AUD-01: the form of events."""

from __future__ import annotations

import json
from typing import Any

from apiserver.apis.meta.users import User
from apiserver.endpoints import requestinfo
from apiserver.endpoints.audit.events import Pieces, Record, without_managed_fields
from apiserver.endpoints.audit.policy import Level, Stage, Verdict

PATH = "/apis/example.com/v1/namespaces/a/widgets/x/status"
SECOND = 1_763_724_000_123_456_789


def record(level: Level = Level.METADATA, path: str = PATH, method: str = "PUT", *, omit: bool = False) -> Record:
    pieces = Pieces()
    user = User("alice", ("team",), "u1", {"scopes": ("x",)})
    origin = r',"sourceIPs":["192.0.2.1","192.0.2.2"],"userAgent":"curl \"8\""'
    verdict = Verdict(level, omit_managed_fields=omit)
    return Record(verdict, pieces, "id-1", requestinfo.parse(method, path, {}), SECOND, path + "?a=%22b", user, origin)


def event(made: Record, stage: str = Stage.RESPONSE_COMPLETE, code: int = 200, **annotations: str) -> dict[str, Any]:
    text = made.event(stage, SECOND + 1_000_000_000, code, annotations)
    assert "\n" not in text
    value: dict[str, Any] = json.loads(text)
    return value


def test_an_event_has_every_field_in_gos_order() -> None:
    made = record()
    made.about({"name": "x", "uid": "o1", "resourceVersion": "7"})
    made.decided(allowed=True, reason='RBAC: allowed by "r"')
    made.act_as(User("bob", ("b",)), "impersonate:user-info")
    assert event(made, Stage.RESPONSE_COMPLETE, 200, **{"other/key": "v"}) == {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Metadata",
        "auditID": "id-1",
        "stage": "ResponseComplete",
        "requestURI": PATH + "?a=%22b",
        "verb": "update",
        "user": {"username": "alice", "uid": "u1", "groups": ["team"], "extra": {"scopes": ["x"]}},
        "impersonatedUser": {"username": "bob", "groups": ["b"]},
        "authenticationMetadata": {"impersonationConstraint": "impersonate:user-info"},
        "sourceIPs": ["192.0.2.1", "192.0.2.2"],
        "userAgent": 'curl "8"',
        "objectRef": {
            "resource": "widgets", "namespace": "a", "name": "x", "uid": "o1", "apiGroup": "example.com", "apiVersion": "v1",
            "resourceVersion": "7", "subresource": "status",
        },
        "responseStatus": {"metadata": {}, "code": 200},
        "requestReceivedTimestamp": "2025-11-21T11:20:00.123456Z",
        "stageTimestamp": "2025-11-21T11:20:01.123456Z",
        "annotations": {
            "authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": 'RBAC: allowed by "r"', "other/key": "v",
        },
    }  # fmt: skip
    keys = list(event(made))
    assert keys[:7] == ["kind", "apiVersion", "level", "auditID", "stage", "requestURI", "verb"]


def test_an_error_is_told_with_its_status() -> None:
    made = record()
    made.status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "reason": "Conflict",
        "message": "m",
        "code": 409,
    }
    assert event(made, code=409)["responseStatus"] == {
        "metadata": {},
        "status": "Failure",
        "reason": "Conflict",
        "message": "m",
        "code": 409,
    }


def test_the_name_of_what_is_created_comes_from_its_object() -> None:
    made = record(method="POST", path="/apis/example.com/v1/namespaces/a/widgets")
    made.about({"name": "new"})
    assert event(made)["objectRef"]["name"] == "new"


def test_metadata_keeps_no_object() -> None:
    made = record()
    made.request({"spec": 1})
    made.response(b"{}")
    assert "requestObject" not in event(made)
    assert "responseObject" not in event(made)


def test_request_keeps_the_request_and_request_response_both() -> None:
    made = record(Level.REQUEST)
    made.request({"spec": 1})
    made.response(b'{"spec": 2}\n')
    assert event(made)["requestObject"] == {"spec": 1}
    assert "responseObject" not in event(made)
    made = record(Level.REQUEST_RESPONSE)
    made.request(b'[{"op": "remove"}]')
    made.response(b'{"spec": 2}\n')
    assert event(made)["requestObject"] == [{"op": "remove"}]
    assert event(made)["responseObject"] == {"spec": 2}


def test_managed_fields_are_left_out_where_the_policy_says_so() -> None:
    made = record(Level.REQUEST_RESPONSE, omit=True)
    made.request({"metadata": {"name": "x", "managedFields": [1]}})
    made.response(b'{"items": [{"metadata": {"managedFields": [1]}}]}')
    assert event(made)["requestObject"] == {"metadata": {"name": "x"}}
    assert event(made)["responseObject"] == {"items": [{"metadata": {}}]}
    table = {"kind": "Table", "rows": [{"object": {"metadata": {"managedFields": []}}}]}
    assert without_managed_fields(table)["rows"] == [{"object": {"metadata": {}}}]


def test_objects_that_are_too_large_are_left_out_and_it_is_said() -> None:
    made = record(Level.REQUEST)
    made.limit = 10
    made.request({"spec": "x" * 100})
    assert "requestObject" not in event(made)
    assert event(made)["annotations"] == {"audit.k8s.io/truncated": "true"}


def test_nobody_may_ask_for_what_is_no_object() -> None:
    info, pieces = requestinfo.parse("GET", "/version", {}), Pieces()
    made = Record(Verdict(Level.METADATA), pieces, "i", info, SECOND, "/version", None, "")
    read = event(made)
    assert read["user"] == {}
    assert "objectRef" not in read


def test_hostile_text_stays_text() -> None:
    info, pieces = requestinfo.parse('G"', '/apis/g/v1/namespaces/a"/r\u2028/x', {}), Pieces()
    made = Record(Verdict(Level.METADATA), pieces, 'i"\n', info, SECOND, "/\ud800", User("\ud800"), "")
    assert json.loads(made.first())["stage"] == "RequestReceived"
    assert event(made)["objectRef"]["namespace"] == 'a"'
