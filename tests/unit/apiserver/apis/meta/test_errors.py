from __future__ import annotations

from typing import Any

import orjson
import pytest

from apiserver.apis.meta import errors

FIELDS = ("code", "reason", "message", "details", "metadata")
DETAILS = ("name", "group", "kind", "uid", "causes", "retryAfterSeconds")
HOSTILE: tuple[Any, ...] = (None, True, 7, -1, 1e30, 10**30, "x", [], [1, "x", None, {"reason": 7}], {}, {"x": 1})


def test_a_whole_status_comes_back_as_it_was() -> None:
    details = errors.Details("vm1", "kubevirt.io", "virtualmachines", "u1", (errors.Cause("FieldValueInvalid", "wrong", "spec.x"),), 7)
    error = errors.TooManyRequests("too many", details, {"continue": "x"})
    back = errors.from_status(error.to_json())
    assert (type(back), back.to_json()) == (errors.TooManyRequests, error.to_json())


def test_error_code_works_without_reason_and_http_without_code() -> None:
    assert isinstance(errors.from_status({"code": 404}), errors.NotFound)
    assert isinstance(errors.from_status({"code": "404"}, 409), errors.Conflict)
    assert isinstance(errors.from_status({}, 418), errors.UnknownStatus)
    assert isinstance(errors.from_status({}), errors.InternalError)


@pytest.mark.parametrize("value", HOSTILE, ids=repr)
def test_no_field_of_a_wrong_type_raises_or_is_passed_on(value: Any) -> None:
    for status in (
        dict.fromkeys(FIELDS, value),
        *({each: value} for each in FIELDS),
        *({"details": {each: value}} for each in DETAILS),
    ):
        error = errors.from_status(status, 503)
        assert isinstance(error, errors.StatusError)
        assert isinstance(error.message, str)
        orjson.dumps(error.to_json())


def test_foreign_error_messages_are_sanitized_and_bounded() -> None:
    causes = (errors.Cause("FieldValueInvalid", "\x1b[2J", "spec.x"),)
    told = errors.TooManyRequests(
        "\x1b]0;pwned\x07 no\nvoice\u202e" + "x" * 5000, errors.Details("n", causes=causes, retry_after_seconds=1 << 30)
    )
    found = errors.of_untrusted(told)

    assert isinstance(found, errors.TooManyRequests)
    assert found.message.startswith("]0;pwned no | voicexxx")
    assert len(found.message) == errors.MAX_UNTRUSTED_MESSAGE
    assert found.details == errors.Details(retry_after_seconds=errors.MAX_UNTRUSTED_RETRY_SECONDS)
