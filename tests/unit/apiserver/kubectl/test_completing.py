from __future__ import annotations

import pytest

from apiserver.apis.core.resources import NAMESPACES, NODES, PERSISTENT_VOLUME_CLAIMS
from apiserver.apis.meta.resources import Resource
from apiserver.apis.virt.places.resources import REPLICA_SETS, VIRTUAL_MACHINES
from apiserver.kubectl import completing, flags

OPTIONS = {
    "stop": ["--force", "--grace-period"],
    "start": ["--paused"],
    "create": ["--memory"],
    "rollout": ["--help"],
    "rollout undo": ["--to-revision"],
    "rollout status": ["--timeout"],
}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], ["create", "rollout", "start", "stop"]),
        (["ro"], ["rollout"]),
        (["rollout", ""], ["status", "undo"]),
        (["-n", "ns", "rollout", "u"], ["undo"]),
        (["rollout", "--"], ["--help"]),
        (["rollout", "undo", ""], ["db", "web"]),
        (["rollout", "undo", "--"], ["--to-revision"]),
        (["st"], ["start", "stop"]),
        (["-n", "ns", "st"], ["start", "stop"]),
        (["--namespace=ns", "st"], ["start", "stop"]),
        (["stop", ""], ["db", "web"]),
        (["stop", "web", ""], ["db"]),
        (["stop", "w"], ["web"]),
        (["stop", "--f"], ["--force"]),
        (["unknown", "--f"], []),
        (["addvolume", "web", "--claim", ""], ["db", "web"]),
        (["-n", "w"], ["web"]),
    ],
)
def test_words_are_commands_then_names_or_flags(given: list[str], expected: list[str]) -> None:
    assert completing.words(given, ["web", "db"], OPTIONS) == expected


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (["st"], None),
        (["stop", ""], VIRTUAL_MACHINES),
        (["stop", "--"], None),
        (["create", ""], None),
        (["-n", ""], NAMESPACES),
        (["addvolume", "web", "--claim", ""], PERSISTENT_VOLUME_CLAIMS),
        (["start", "web", "--node", ""], NODES),
        (["start", "--node", "node1", ""], VIRTUAL_MACHINES),
        (["rollout", ""], None),
        (["rollout", "status", ""], REPLICA_SETS),
    ],
)
def test_the_cluster_is_asked_only_for_names(given: list[str], kind: Resource | None) -> None:
    assert completing.kind_of_names(given) == kind


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
