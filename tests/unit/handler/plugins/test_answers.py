from __future__ import annotations

import json
from typing import Any

import pytest

from handler.plugins import answers
from handler.plugins.answers import Output
from handler.plugins.faults import Failed, PluginRefused
from handler.plugins.protocol import VERSION, Command, Kind

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
        with pytest.raises(Failed, match=rf"^plugin lan \({command}\) did not write a JSON object"):
            answers.result_of("lan", command, said(b""), None)


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (said(b"garbage"), "a JSON object: "),
        (said(b"\xff{}"), "a JSON object: "),
        (said(b"[]"), "a JSON object: it is another type"),
        (said(b'{"version": "1.0.0", "tap": "a", "tap": "b"}'), "a field occurs twice"),
        (said(b'{"version": "1.0.0", "mtu": NaN}'), "NaN is not a number"),
        (said(b'{"version": "1.0.0", "tap": "\\ud800"}'), "a JSON object: "),
        (said(b"[" * 60000), "nested too deeply"),
        (said(json.dumps(FINE).encode() * 2), "a JSON object: "),
        (said({**FINE, "version": "2.0.0"}), "answered in version 2.0.0 to a request in version 1.0.0"),
        (said({"tap": "tap0"}), "answered in version None"),
        (said({"version": VERSION, "code": 5, "msg": "no such bridge"}), r"an error but exited with status 0: no such bridge \(code 5\)"),
        (said(FINE, 1), "exited with status 1 and wrote no"),
        (said(b"", 3), "exited with status 3 and wrote no JSON error"),
        (said({"code": "5", "msg": "x"}, 1), "code must be a number"),
        (said({"code": True, "msg": "x"}, 1), "code must be a number"),
        (said({"code": 5}, 1), "msg a string"),
        (said({"code": 5, "msg": "no", "hint": "x"}, 1), "exited with status 1 and wrote no valid error: "),
        (said({"version": VERSION, "code": 5, "msg": "no", "details": "it is"}, 1), r"\): no: it is \(code 5\)$"),
        (said({"code": 5, "msg": ""}, 1), r"\): no message \(code 5\)$"),
        (said({"version": VERSION, "code": 5}), "reported an error but exited with status 0"),
        (said({"version": VERSION, "msg": "no"}), "reported an error but exited with status 0"),
        (said(FINE, -1), "was killed by signal 1"),
        (said(FINE, -9), "was killed by signal 9"),
        (said(FINE, excess=True), "wrote more output than allowed and was killed"),
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
    with pytest.raises(PluginRefused, match=r"^plugin lan \(ADD\): option vlan is not a number"):
        answers.result_of("lan", "ADD", said({"code": code, "msg": "option vlan is not a number"}, 1), None)


@pytest.mark.parametrize(("kind", "mine"), [("network", "tap"), ("storage", "disk")])
@pytest.mark.parametrize("command", ["ADD", "CHECK", "DEL"])
def test_unknown_result_members_are_a_failure(kind: Kind, mine: str, command: Command) -> None:
    members, fine = answers.members_of(kind, command), {"version": VERSION, mine: {}}
    assert answers.result_of("lan", command, said(fine), members) == fine
    for unknown in ("foo", {"tap": "disk", "disk": "tap"}[mine], "liveMigration"):
        with pytest.raises(Failed, match=rf"^plugin lan \({command}\) answered with '{unknown}', which is not a field of a result$"):
            answers.result_of("lan", command, said({**fine, unknown: 1}), members)
    with pytest.raises(Failed, match="answered with 'a', which"):
        answers.result_of("lan", command, said({**fine, "b": 1, "a": 1}), members)


def test_a_member_that_no_plugin_says_of_itself_is_a_fault() -> None:
    members = answers.members_of("network", "VERSION")
    fine = {"version": VERSION, "supportedVersions": [VERSION], "kinds": ["network"], "liveMigration": True, "commands": ["ADD"]}
    assert answers.result_of("lan", "VERSION", said(fine), members) == fine
    with pytest.raises(Failed, match="answered with 'tap', which is not a field"):
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
        ({"supportedVersions": ["2.0.0"]}, "supports versions 2.0.0; this virt-handler requires 1.0.0"),
        ({"supportedVersions": []}, "supports versions none"),
        ({"supportedVersions": VERSION}, "supportedVersions must be a list of short strings"),
        ({"supportedVersions": [VERSION] * 33}, "supportedVersions must be a list of short strings"),
        ({"kinds": [1]}, "kinds must be a list of short strings"),
        ({"kinds": ["storage"]}, "is for storage, not for network"),
        ({"kinds": []}, "is for nothing, not for network"),
        ({"kinds": ["network", "k" * 33]}, "kinds must be a list of short strings"),
        ({"liveMigration": "yes"}, "liveMigration must be true or false"),
        ({"commands": []}, "commands must contain ADD, and optionally CHECK and DEL"),
        ({"commands": ["CHECK", "DEL"]}, "commands must contain ADD"),
        ({"commands": ["ADD", "GC"]}, "commands must contain ADD"),
        ({"commands": None}, "commands must be a list of short strings"),
    ],
    ids=str,
)
def test_a_plugin_that_cannot_be_used_is_told(members: dict[str, Any], words: str) -> None:
    with pytest.raises(Failed, match=words):
        described(**members)
