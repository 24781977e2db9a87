from __future__ import annotations

import http.client
import re
from collections.abc import Iterator
from typing import Any, Final

import pytest

from apiserver.apis.meta.validation import Path
from apiserver.apis.virt.v1alpha1 import placement
from tests.reference_server import environment
from tests.reference_server.environment import Environment
from tests.unit.apiserver.apis.virt.v1alpha1.test_placement import CASES, LABELS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

DRY_RUN: Final = "/api/v1/namespaces/default/pods?dryRun=All"
_TWICE: Final = re.compile(r"topologySpreadConstraints\[0\]\.\{topologyKey, whenUnsatisfiable\}")
_MISNAMED: Final = (
    (_TWICE, "topologySpreadConstraints[1]"),
    (re.compile(r"\.namespace$"), ".namespaces[1]"),
    (re.compile(r"(Execution\[0\](?:\.podAffinityTerm)?|topologySpreadConstraints\[0\])\[(\d)\]$"), r"\1.matchLabelKeys[\2]"),
)
"""kube-apiserver's paths that name no field, and ours."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    with environment.environment(tmp_path_factory.mktemp("placement")) as here:
        path = "/api/v1/namespaces/default/serviceaccounts"
        here.ensure(path, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}})
        yield here


def theirs(cluster: Environment, spec: dict[str, Any]) -> set[str]:
    container = {"name": "c", "image": "i"}
    metadata = {"name": "placed", "labels": LABELS}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**spec, "containers": [container]}}
    code, answer = cluster.call("POST", DRY_RUN, pod)
    if code == http.client.CREATED:
        return set()
    assert code == http.client.UNPROCESSABLE_ENTITY, answer
    return {_field(each) for each in answer["details"]["causes"]}


def _field(cause: dict[str, str]) -> str:
    field = cause["field"].removeprefix("spec.")
    for wrong, right in _MISNAMED:
        field = wrong.sub(right, field)
    return field


def test_placement_is_refused_as_by_kube_apiserver(cluster: Environment) -> None:
    differing = []
    for spec, _ in CASES:
        if "priorityClassName" in spec:
            continue
        wrong = {each.path for each in placement.validate(spec, Path())}
        said = theirs(cluster, spec)
        if wrong != said:
            differing.append((spec, wrong, said))
    assert not differing
