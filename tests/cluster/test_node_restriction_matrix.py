from __future__ import annotations

import pytest

from tests.cluster.kube import Kubectl
from tests.cluster.test_node_restriction import (
    FORGERY,
    Json,
    Stolen,
    is_refused_to_another_node,
    is_refused_to_its_own_node,
    stolen,
    victim,
)

__all__ = ["stolen", "victim"]

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

FORGERIES: tuple[Json, ...] = (
    FORGERY,
    {"nodeName": "elsewhere"},
    {"podUID": "0b8f7f0e-5d0c-4a8e-9f61-0b6ad2c9a001"},
    {"podIP": "192.0.2.66"},
    {"request": {"action": "Stop", "runStrategy": "RerunOnFailure", "attempt": 1}},
    {"attempt": 9},
    {},
)


@pytest.mark.parametrize("changes", FORGERIES, ids=lambda each: ",".join(each) or "nothing")
def test_node_token_cannot_write_another_nodes_status(
    kubectl: Kubectl, system: Kubectl, stolen: Stolen, victim: Json, changes: Json
) -> None:
    is_refused_to_another_node(kubectl, system, stolen, victim, changes)


@pytest.mark.parametrize("changes", [each for each in FORGERIES if each], ids=",".join)
def test_own_nodes_token_forges_no_foreign_field(kubectl: Kubectl, stolen: Stolen, victim: Json, changes: Json) -> None:
    is_refused_to_its_own_node(kubectl, stolen, victim, changes)
