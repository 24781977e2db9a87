from __future__ import annotations

from typing import Any

import pytest

from apiserver.apis.virt import node_protocol


def a_lease(text: Any = None) -> dict[str, Any]:
    return {"metadata": {"name": "virt-handler-a", **({"annotations": {node_protocol.ANNOTATION: text}} if text is not None else {})}}


def test_process_understands_its_own_protocol_version() -> None:
    assert node_protocol.spoken_by(a_lease(node_protocol.written())) == node_protocol.SPOKEN
    assert node_protocol.written({2, 10, 1}) == "1,2,10"
    assert node_protocol.VERSION in node_protocol.SPOKEN


def test_a_virt_handler_of_before_versions_speaks_the_first_one() -> None:
    assert node_protocol.spoken_by(a_lease()) == {1}
    assert node_protocol.is_understood(a_lease())


@pytest.mark.parametrize("text", ["", "two", "1,", "1;2", "-1", "1" * 5, ",".join(["1"] * 40), "\u0661", "1\n"], ids=ascii)
def test_malformed_protocol_version_counts_as_none(text: str) -> None:
    assert node_protocol.spoken_by(a_lease(text)) == frozenset()
    assert not node_protocol.is_understood(a_lease(text))
    assert node_protocol.refusal("a", a_lease(text)) == (
        "node a cannot run guests: its virt-handler reports no valid version of the node protocol, but "
        "virt-controller uses 1; upgrade both to the same version"
    )


def test_common_protocol_version_is_enough() -> None:
    assert node_protocol.is_understood(a_lease("1,2"))
    assert not node_protocol.is_understood(a_lease("2,3"))
    assert node_protocol.refusal("a", a_lease("3,2")).startswith(
        "node a cannot run guests: its virt-handler uses version 2,3 of the node protocol"
    )
