from __future__ import annotations

import http.client
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.component.controller.test_pod_policy import PATHS, Cluster
from tests.fakes import chart
from tests.reference_server import environment
from tests.unit.charts.test_quota_policy import HARD, MACHINES, POLICY, QUOTA, REFUSED, VIRT_API, changed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

QUOTAS = "/api/v1/namespaces/default/resourcequotas"
OURS = (POLICY, "kubevirt.io:virt-api")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with environment.environment(tmp_path_factory.mktemp("quotas")) as here:
        known = Cluster(here)
        for each in chart.objects():
            if each["metadata"]["name"] in OURS:
                code, answer = known.ask("POST", PATHS[each["kind"]], each, user="")
                assert code == http.client.CREATED, answer
        code, answer = known.ask("POST", QUOTAS, {key: QUOTA[key] for key in ("apiVersion", "kind", "metadata", "spec")}, user="")
        assert code == http.client.CREATED, answer
        code, answer = known.ask("PUT", f"{QUOTAS}/q/status", QUOTA, user="")
        assert code == http.client.OK, answer
        deadline = time.monotonic() + 60
        while write(known, changed(hard={**HARD, MACHINES: "9"}))[0] != http.client.FORBIDDEN:
            assert time.monotonic() < deadline
            known.ask("PUT", f"{QUOTAS}/q/status", QUOTA, user="")
            time.sleep(0.2)
        yield known


def write(cluster: Cluster, quota: dict[str, Any]) -> tuple[int, Any]:
    return cluster.ask("PUT", f"{QUOTAS}/q/status?dryRun=All", quota, user=VIRT_API)


def test_a_machine_is_counted(cluster: Cluster) -> None:
    code, answer = write(cluster, changed(used={**QUOTA["status"]["used"], MACHINES: "3"}))
    assert (code, answer["status"].get("used", {}).get(MACHINES)) == (http.client.OK, "3"), answer


@pytest.mark.parametrize("what", REFUSED)
def test_nothing_else_of_a_quota_is_changed(cluster: Cluster, what: str) -> None:
    status, why = REFUSED[what]
    code, answer = write(cluster, changed(**status))
    assert (code, why in answer["message"]) == (http.client.FORBIDDEN, True), answer
    assert "resulted in error" not in answer["message"]
