from __future__ import annotations

import json
from typing import Any

import pytest

from handler.plugins import answers
from handler.plugins.answers import Output
from handler.plugins.contract import VERSION, Command, Kind
from handler.plugins.faults import Failed, PluginRefused

FINE = {"version": VERSION, "tap": "tap0"}


def said(document: Any, status: int = 0, **more: Any) -> Output:
    return Output(status, document if isinstance(document, bytes) else json.dumps(document).encode(), **more)


def test_a_result_is_returned_as_it_is() -> None:
    assert answers.result_of("lan", "ADD", said(FINE), None) == FINE


@pytest.mark.parametrize(("command", "fine"), [("DEL", True), ("CHECK", True), ("ADD", False), ("VERSION", False)])
def test_silence_is_an_answer_where_there_is_nothing_to_say(command: Command, fine: bool) -> None:
    if fine:
        assert answers.result_of("lan", command, said(b" \n"), None) == {}
    else:
        with pytest.raises(Failed, match=rf"^plugin lan \({command}\) answered what is no JSON object"):
            answers.result_of("lan", command, said(b""), None)


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (said(b"garbage"), "no JSON object: "),
        (said(b"\xff{}"), "no JSON object: "),
        (said(b"[]"), "no JSON object: it is something else"),
        (said(b'{"version": "1.0.0", "tap": "a", "tap": "b"}'), "a member occurs twice"),
        (said(b'{"version": "1.0.0", "mtu": NaN}'), "NaN is no number"),
        (said(b'{"version": "1.0.0", "tap": "\\ud800"}'), "no JSON object: "),
        (said(b"[" * 60000), "nested too deeply"),
        (said(json.dumps(FINE).encode() * 2), "no JSON object: "),
        (said({**FINE, "version": "2.0.0"}), "answered in version 2.0.0, and was asked in version 1.0.0"),
        (said({"tap": "tap0"}), "answered in version None"),
        (said({"version": VERSION, "code": 5, "msg": "no such bridge"}), r"an error and exited with status 0: no such bridge \(code 5\)"),
        (said(FINE, 1), "exited with status 1 and said no error"),
        (said(b"", 3), "exited with status 3 and said no error as JSON"),
        (said({"code": "5", "msg": "x"}, 1), "code has to be a number"),
        (said({"code": True, "msg": "x"}, 1), "code has to be a number"),
        (said({"code": 5}, 1), "msg a text"),
        (said({"code": 5, "msg": "no", "hint": "x"}, 1), "exited with status 1 and said no error: "),
        (said({"version": VERSION, "code": 5, "msg": "no", "details": "it is"}, 1), r"\): no: it is \(code 5\)$"),
        (said({"code": 5, "msg": ""}, 1), r"\): no words \(code 5\)$"),
        (said({"version": VERSION, "code": 5}), "said an error and exited with status 0"),
        (said({"version": VERSION, "msg": "no"}), "said an error and exited with status 0"),
        (said(FINE, -1), "was ended by signal 1"),
        (said(FINE, -9), "was ended by signal 9"),
        (said(FINE, excess=True), "wrote more than a plugin may, and was ended"),
        (said({"code": 11, "msg": "later", "details": "the\npool\x1b is empty"}, 1), r"\): later: the \| pool is empty \(code 11\)$"),
    ],
    ids=str,
)
def test_malformed_plugin_output_is_a_one_line_failure(output: Output, words: str) -> None:
    with pytest.raises(Failed, match=words) as fault:
        answers.result_of("lan", "ADD", output, None)
    assert str(fault.value).startswith("plugin lan (ADD)")
    assert str(fault.value).isprintable()


@pytest.mark.parametrize("code", [2, 7])
def test_permanent_plugin_errors_are_distinguished(code: int) -> None:
    with pytest.raises(PluginRefused, match=r"^plugin lan \(ADD\): option vlan is no number"):
        answers.result_of("lan", "ADD", said({"code": code, "msg": "option vlan is no number"}, 1), None)


@pytest.mark.parametrize(("kind", "mine"), [("network", "tap"), ("storage", "disk")])
@pytest.mark.parametrize("command", ["ADD", "CHECK", "DEL"])
def test_unknown_result_members_are_a_failure(kind: Kind, mine: str, command: Command) -> None:
    members, fine = answers.members_of(kind, command), {"version": VERSION, mine: {}}
    assert answers.result_of("lan", command, said(fine), members) == fine
    for unknown in ("foo", {"tap": "disk", "disk": "tap"}[mine], "liveMigration"):
        with pytest.raises(Failed, match=rf"^plugin lan \({command}\) answered with '{unknown}', which is no member of a result$"):
            answers.result_of("lan", command, said({**fine, unknown: 1}), members)
    with pytest.raises(Failed, match="answered with 'a', which"):
        answers.result_of("lan", command, said({**fine, "b": 1, "a": 1}), members)


def test_a_member_that_no_plugin_says_of_itself_is_a_fault() -> None:
    members = answers.members_of("network", "VERSION")
    fine = {"version": VERSION, "supportedVersions": [VERSION], "kinds": ["network"], "liveMigration": True, "commands": ["ADD"]}
    assert answers.result_of("lan", "VERSION", said(fine), members) == fine
    with pytest.raises(Failed, match="answered with 'tap', which is no member"):
        answers.result_of("lan", "VERSION", said({**fine, "tap": "tap0"}), members)


def test_an_error_of_any_length_is_cut() -> None:
    with pytest.raises(Failed) as fault:
        answers.result_of("lan", "ADD", said({"code": 100, "msg": "x" * 9000, "details": "y" * 9000}, 1), None)
    assert len(str(fault.value)) < 1200


def described(**members: Any) -> answers.Description:
    return answers.describe("lan", "network", {"supportedVersions": ["0.9.0", VERSION], "kinds": ["network"], **members})


def test_plugin_description_is_parsed() -> None:
    assert described() == answers.Description(("0.9.0", VERSION), ("network",), live_migration=False)
    assert described(liveMigration=True).live_migration
    long = [*(str(each) for each in range(30)), "v" * 32, VERSION]
    assert described(supportedVersions=long).versions == tuple(long)
    assert described().commands == {"ADD", "CHECK", "DEL"}
    assert described(commands=["DEL", "ADD"]).commands == {"ADD", "DEL"}


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"supportedVersions": ["2.0.0"]}, "speaks versions 2.0.0; this virt-handler speaks 1.0.0"),
        ({"supportedVersions": []}, "speaks versions none"),
        ({"supportedVersions": VERSION}, "supportedVersions is no list of short texts"),
        ({"supportedVersions": [VERSION] * 33}, "supportedVersions is no list of short texts"),
        ({"kinds": [1]}, "kinds is no list of short texts"),
        ({"kinds": ["storage"]}, "is for storage, and not for network"),
        ({"kinds": []}, "is for nothing, and not for network"),
        ({"kinds": ["network", "k" * 33]}, "kinds is no list of short texts"),
        ({"liveMigration": "yes"}, "liveMigration is neither true nor false"),
        ({"commands": []}, "commands has to name ADD, and may name CHECK and DEL"),
        ({"commands": ["CHECK", "DEL"]}, "commands has to name ADD"),
        ({"commands": ["ADD", "GC"]}, "commands has to name ADD"),
        ({"commands": None}, "commands is no list of short texts"),
    ],
    ids=str,
)
def test_a_plugin_that_cannot_be_used_is_told(members: dict[str, Any], words: str) -> None:
    with pytest.raises(Failed, match=words):
        described(**members)
