from __future__ import annotations

import pytest

from apiserver.kubectl import completing, flags

OPTIONS = {"stop": ["--force", "--grace-period"], "start": ["--paused"], "create": ["--memory"]}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], ["create", "start", "stop"]),
        (["st"], ["start", "stop"]),
        (["-n", "ns", "st"], ["start", "stop"]),
        (["--namespace=ns", "st"], ["start", "stop"]),
        (["stop", ""], ["db", "web"]),
        (["stop", "web", ""], ["db"]),
        (["stop", "w"], ["web"]),
        (["stop", "--f"], ["--force"]),
        (["unknown", "--f"], []),
    ],
)
def test_words_are_commands_then_names_or_flags(given: list[str], expected: list[str]) -> None:
    assert completing.words(given, ["web", "db"], OPTIONS) == expected


@pytest.mark.parametrize(
    ("given", "asks"), [(["st"], False), (["stop", ""], True), (["stop", "--"], False), (["create", ""], False), (["-n", ""], False)]
)
def test_the_cluster_is_asked_only_for_names(given: list[str], asks: bool) -> None:
    assert completing.needs_names(given) is asks


def test_names_are_those_of_the_selected_namespace() -> None:
    found = completing.selection_of(["-n", "one", "stop", "--context=two", ""])
    assert (found.namespace, found.context) == ("one", "two")


def test_kubectl_gets_a_word_per_line_and_a_directive(capsys: pytest.CaptureFixture[str]) -> None:
    assert completing.main(["powero"]) == 0
    assert capsys.readouterr().out == "poweroff\n:4\n"
    assert completing.main(["stop", "--gr"]) == 0
    assert capsys.readouterr().out == "--grace-period\n:4\n"


def test_flags_with_a_value_are_kubectls() -> None:
    parsed = flags.parse(["stop", "a", *(word for flag in sorted(flags.WITH_VALUE) for word in (flag, "x"))])
    assert parsed.selection.namespace == "x"
