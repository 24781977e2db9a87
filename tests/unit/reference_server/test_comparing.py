from __future__ import annotations

import json
from typing import Any, Final

import pytest

from tests.reference_server.asking import Answer
from tests.reference_server.comparing import judge
from tests.reference_server.rows import Step, get

JSON: Final = {"content-type": "application/json"}
CAUSES: Final = [{"reason": "FieldValueInvalid", "message": "m", "field": "spec.a"}, {"reason": "FieldValueRequired", "field": "spec.b"}]


def status(code: int = 422, reason: str = "Invalid", message: str = "words", **more: Any) -> dict[str, Any]:
    said = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "reason": reason, "code": code}
    return {**said, "details": {"name": "a", "causes": CAUSES}, **more}


def answer(body: Any, code: int = 0, **headers: str) -> Answer:
    return Answer(code or body.get("code", 200), {**JSON, **headers}, json.dumps(body))


def watch(*events: dict[str, Any]) -> Answer:
    return Answer(200, JSON, "".join(f"{json.dumps(each)}\n" for each in events))


SAME: Final = get()
OTHER_WORDS: Final = get(differs="other words")


@pytest.mark.parametrize(
    ("step", "ours", "member"),
    [
        (SAME, answer(status(message="other")), "message"),
        (OTHER_WORDS, answer(status(message="other", reason="BadRequest")), "reason"),
        (
            OTHER_WORDS,
            answer(status(message="other", details={"name": "a", "causes": CAUSES[:1]})),
            "only the reference: details.causes.more",
        ),
        (OTHER_WORDS, answer(status(message="other", details={"name": "a", "causes": CAUSES[::-1]})), "details.causes.field"),
        (OTHER_WORDS, answer(status(message="other", metadata=None)), "metadata"),
        (OTHER_WORDS, answer({**status(message="other"), "metadata": {"continue": None}}), "only ours: metadata.continue"),
        (
            OTHER_WORDS,
            answer({name: value for name, value in status(message="other").items() if name != "details"}),
            "only the reference: details",
        ),
        (OTHER_WORDS, answer({name: value for name, value in status().items() if name != "message"}), "only the reference: message"),
        (OTHER_WORDS, answer(status(message="other", code=True)), "code"),
        (OTHER_WORDS, answer(status(message="other"), code=400), "HTTP status"),
        (OTHER_WORDS, answer(status(message="other"), warning='299 - "w"'), "only ours: header warning"),
        (OTHER_WORDS, Answer(422, JSON, "text"), "body"),
        (OTHER_WORDS, answer(status()), "the words are the same"),
        (get(beside={"details.name": "why"}), answer(status()), "details.name is the same"),
        (get(beside={"details.name": "why"}), answer(status(details={"name": "b"})), "only the reference: details.causes"),
        (get(beside={"details.name": "why"}), answer(status(details={"causes": CAUSES})), "only the reference: details.name"),
    ],
)
def test_unnamed_differences_and_vain_exceptions_are_found(step: Step, ours: Answer, member: str) -> None:
    assert any(each.startswith(member) for each in judge(step, answer(status()), ours))


@pytest.mark.parametrize(
    ("step", "ours"),
    [
        (SAME, answer(status())),
        (OTHER_WORDS, answer(status(message="other"))),
        (get(beside={"details": "why"}), answer(status(details=None))),
        (
            get(differs="words", beside={"only the reference: details.causes.more": "why", "only ours: details.uid": "why"}),
            answer(status(message="other", details={"name": "a", "causes": CAUSES[:1], "uid": "u"})),
        ),
    ],
)
def test_named_differences_are_allowed(step: Step, ours: Answer) -> None:
    assert judge(step, answer(status()), ours) == []


def test_null_is_not_absent() -> None:
    has, has_not = ({"kind": "Table", "rows": None}, {"kind": "Table"})
    assert judge(SAME, answer(has), answer(has)) == []
    assert judge(SAME, answer(has), answer(has_not)) == ["only the reference: rows: reference null, ours nothing"]
    assert judge(SAME, answer(has_not), answer(has)) == ["only ours: rows: reference nothing, ours null"]
    named = get(beside={"rows": "why"})
    assert judge(named, answer(has), answer({**has, "rows": []})) == []
    assert judge(named, answer(has), answer(has_not))[0].startswith("only the reference: rows")


def test_an_event_more_is_named_by_its_type() -> None:
    added = {"type": "ADDED", "object": {"metadata": {"resourceVersion": "5"}}}
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "6"}}}
    step = get(beside={"only ours: events.more.BOOKMARK": "a watch ends with a bookmark"})
    assert judge(step, watch(added), watch(added, bookmark)) == []
    assert judge(step, watch(added), watch(added, bookmark, added))[0].startswith("only ours: events.more.ADDED")
    assert judge(SAME, watch(added), watch(bookmark)) == ['events.type: reference "ADDED", ours "BOOKMARK"']


@pytest.mark.parametrize(
    ("ours", "found"),
    [
        (answer(status()), []),
        (answer(status(code=400, reason="BadRequest")), ["HTTP status"]),
        (answer(status(reason="BadRequest")), ["reason"]),
        (answer(status(message="")), ["message"]),
        (answer(status(details={"name": "a"})), ["details.causes"]),
        (answer(status(details={"causes": [{"reason": "FieldValueInvalid"}]})), ["details.causes"]),
        (Answer(422, JSON, "text"), ["kind", "apiVersion", "status", "reason", "code", "message", "details.causes"]),
    ],
)
def test_decided_code_requires_the_matching_answer(ours: Answer, found: list[str]) -> None:
    wrong = judge(get(differs="decided", code=422), answer(status(code=400, reason="BadRequest")), ours)
    assert [each.partition(":")[0] for each in wrong] == found


def entry(manager: str, second: int) -> dict[str, str]:
    return {"manager": manager, "operation": "Apply", "apiVersion": "v1", "time": f"2026-01-01T00:00:0{second}Z"}


def test_owners_ordered_by_time_are_equal_within_a_second() -> None:
    at_once, later, wrong = (
        answer({"metadata": {"managedFields": [*entries]}})
        for entries in ((entry("a", 1), entry("b", 1)), (entry("b", 1), entry("a", 2)), (entry("b", 1), entry("a", 1)))
    )
    assert judge(SAME, at_once, later) == []
    assert judge(SAME, at_once, wrong) != []
