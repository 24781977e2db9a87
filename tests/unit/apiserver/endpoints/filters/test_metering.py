from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from apiserver.endpoints import requestinfo
from apiserver.endpoints.filters.metering import SECONDS, Deciding, Requests, compressed
from apiserver.metrics.instruments import LIMIT, Registry

PATH = "/apis/example.com/v1/namespaces/a/widgets"


def requests() -> Requests:
    return Requests({("example.com", "v1", "widgets"): ("console", "status")})


def read(counted: Requests) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    registry = Registry()
    counted.register(registry)
    families = text_string_to_metric_families(registry.page().decode())
    return {(each.name, tuple(sorted(each.labels.items()))): each.value for family in families for each in family.samples}


@pytest.mark.parametrize(
    ("method", "path", "query", "verb", "scope"),
    [
        ("GET", f"{PATH}/x", {}, "GET", "resource"),
        ("GET", PATH, {}, "LIST", "namespace"),
        ("GET", "/apis/example.com/v1/widgets", {}, "LIST", "cluster"),
        ("GET", PATH, {"watch": "1"}, "WATCH", "namespace"),
        ("GET", "/apis/example.com/v1/watch/namespaces/a/widgets", {}, "WATCH", "namespace"),
        ("GET", PATH, {"fieldSelector": "metadata.name=x"}, "LIST", "namespace"),
        ("POST", PATH, {}, "POST", "resource"),
        ("PUT", f"{PATH}/x", {}, "PUT", "resource"),
        ("PATCH", f"{PATH}/x", {}, "PATCH", "resource"),
        ("DELETE", f"{PATH}/x", {}, "DELETE", "resource"),
        ("DELETE", PATH, {}, "DELETECOLLECTION", "namespace"),
        ("BREW", f"{PATH}/x", {}, "other", "resource"),
    ],
)
def test_verbs_and_scopes_are_gos(method: str, path: str, query: dict[str, str], verb: str, scope: str) -> None:
    info = requestinfo.parse(method, path, query)
    labels = requests().labels(info)
    assert labels == (verb, "example.com", "v1", "widgets", "", scope, "apiserver")


def test_apply_and_connect_have_verbs_of_their_own() -> None:
    info = requestinfo.parse("PATCH", f"{PATH}/x/status", {})
    assert requests().labels(info, apply=True)[0] == "APPLY"
    assert requests().labels(info)[4] == "status"
    assert requests().labels(requestinfo.parse("GET", f"{PATH}/x/console", {}), connect=True)[0] == "CONNECT"


def test_duration_counts_in_both_histograms_and_waiting_in_one() -> None:
    counted = requests()
    series = counted.series(requestinfo.parse("GET", f"{PATH}/x", {}))
    series.ended(200, 0.003, 0, 1500)
    series.ended(200, 3.2, 3.18, 1500)
    page = read(counted)
    labels = {
        "verb": "GET", "group": "example.com", "version": "v1", "resource": "widgets", "subresource": "", "scope": "resource",
        "component": "apiserver",
    }  # fmt: skip

    def of(name: str, **more: str) -> float:
        return page[name, tuple(sorted({**labels, **more}.items()))]

    assert of("apiserver_request_total", dry_run="", code="200") == 2
    assert of("apiserver_request_duration_seconds_bucket", dry_run="", le="0.005") == 1
    assert of("apiserver_request_duration_seconds_bucket", dry_run="", le="3") == 1
    assert of("apiserver_request_duration_seconds_bucket", dry_run="", le="4") == 2
    assert of("apiserver_request_sli_duration_seconds_bucket", le="0.05") == 2
    assert of("apiserver_request_sli_duration_seconds_count") == 2
    assert of("apiserver_request_sli_duration_seconds_sum") == pytest.approx(0.023)
    assert of("apiserver_response_sizes_bucket", le="10000") == 2
    assert ("apiserver_request_sli_duration_seconds_bucket", tuple(sorted({**labels, "le": "0.005"}.items()))) not in page


def test_dry_runs_are_apart_and_no_sli() -> None:
    counted = requests()
    counted.series(requestinfo.parse("POST", PATH, {}), dry_run="All").ended(201, 0.01, 0, 0)
    names = {name for name, labels in read(counted) if ("verb", "POST") in labels}
    assert "apiserver_request_total" in names
    assert not any(name.startswith("apiserver_request_sli") for name in names)


def test_names_that_clients_invent_make_no_series() -> None:
    counted = requests()
    for each in range(3 * LIMIT):
        counted.series(requestinfo.parse("GET", f"/apis/x{each}.com/v1/things{each}", {})).ended(404, 0.001, 0, 0)
        counted.series(requestinfo.parse(f"M{each}", f"/nothing/{each}", {})).ended(404, 0.001, 0, 0)
    totals = {labels: value for (name, labels), value in read(counted).items() if name == "apiserver_request_total"}
    assert len(totals) == 2
    assert sum(totals.values()) == 6 * LIMIT


def test_invented_versions_and_subresources_make_no_series() -> None:
    counted = requests()
    for each in range(10):
        name = chr(97 + each)
        for path in (f"{PATH}/x/{name}", f"/apis/example.com/v{name}/namespaces/a/widgets/x", f"/apis/example.com/v{each + 2}/widgets/x"):
            counted.series(requestinfo.parse("GET", path, {})).ended(404, 0.001, 0, 0)
            counted.series(requestinfo.parse("PATCH", path, {}), dry_run="All", apply=True).ended(404, 0.001, 0, 0)
    counted.series(requestinfo.parse("GET", f"{PATH}/x/status", {})).ended(200, 0.001, 0, 0)
    totals = {labels: value for (name, labels), value in read(counted).items() if name == "apiserver_request_total"}
    assert sorted(totals.values()) == [1, 30, 30]
    assert len(counted._by_request) == 3


def test_discovery_counts_under_gos_name() -> None:
    assert [requests().labels(requestinfo.parse("GET", path, {}))[4] for path in ("/apis", "/livez", "/nope")] == ["apis", "/livez", ""]


def test_buckets_are_gos() -> None:
    assert SECONDS[:4] == (0.005, 0.025, 0.05, 0.1)
    assert SECONDS[-2:] == (45, 60)
    assert len(SECONDS) == 23


def test_no_metric_names_a_person() -> None:
    assert [compressed(each) for each in ("admin", "me@example.com", "system:serviceaccount:a:b")] == ["admin", "email_id", "other"]


def test_decisions_are_counted_by_result() -> None:
    deciding, registry = Deciding(), Registry()
    deciding.register(registry)
    deciding.authenticated("kubelet", 0.0001)
    deciding.unauthenticated("failure", 0.2)
    deciding.allowed(0.0001)
    deciding.refused("no-opinion", 0.2)
    page = registry.page().decode()
    for line in (
        'authentication_attempts{result="success"} 1',
        'authentication_attempts{result="failure"} 1',
        'authenticated_user_requests{username="kubelet"} 1',
        'authorization_attempts_total{result="allowed"} 1',
        'authorization_attempts_total{result="no-opinion"} 1',
        'authentication_duration_seconds_bucket{result="failure",le="0.256"} 1',
    ):
        assert line in page
