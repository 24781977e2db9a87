from __future__ import annotations

import asyncio

import aiohttp
import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.component.apiserver.conftest import Api, Pki
from tests.component.apiserver.widgets import widget

REQUESTS = {"verb", "group", "version", "resource", "subresource", "scope", "component"}
NAMES = {
    "apiserver_request_total": REQUESTS | {"dry_run", "code"},
    "apiserver_request_duration_seconds": REQUESTS | {"dry_run"},
    "apiserver_request_sli_duration_seconds": REQUESTS,
    "apiserver_response_sizes": REQUESTS,
    "apiserver_longrunning_requests": REQUESTS,
    "apiserver_request_terminations_total": REQUESTS | {"code"},
    "apiserver_request_body_size_bytes": {"group", "resource", "verb"},
    "apiserver_current_inflight_requests": {"request_kind"},
    "authentication_token_cache_request_total": {"status"},
    "authentication_token_cache_request_duration_seconds": {"status"},
    "authentication_token_cache_fetch_total": {"status"},
    "apiserver_watch_events_total": {"group", "version", "resource"},
    "apiserver_watch_events_sizes": {"group", "version", "resource"},
    "apiserver_watch_list_duration_seconds": {"group", "version", "resource", "scope"},
    "apiserver_storage_objects": {"resource"},
    "apiserver_resource_objects": {"group", "resource"},
    "etcd_request_duration_seconds": {"operation", "group", "resource"},
    "etcd_requests_total": {"operation", "group", "resource"},
    "apiserver_storage_list_total": {"group", "resource"},
    "apiserver_cache_list_total": {"group", "resource", "index"},
    "apiserver_cache_list_fetched_objects_total": {"group", "resource", "index"},
    "apiserver_cache_list_returned_objects_total": {"group", "resource"},
    "apiserver_watch_cache_consistent_read_total": {"group", "resource", "success", "fallback"},
    "apiserver_watch_cache_events_dispatched_total": {"group", "resource"},
    "apiserver_terminated_watchers_total": {"group", "resource"},
    "apiserver_watch_cache_events_received_total": {"group", "resource"},
    "apiserver_watch_cache_resource_version": {"group", "resource"},
    "apiserver_watch_cache_initializations_total": {"group", "resource"},
    "authentication_attempts": {"result"},
    "authentication_duration_seconds": {"result"},
    "authenticated_user_requests": {"username"},
    "authorization_attempts_total": {"result"},
    "authorization_duration_seconds": {"result"},
    "apiserver_delegated_authn_request_total": {"code"},
    "apiserver_delegated_authn_request_duration_seconds": {"code"},
    "apiserver_delegated_authz_request_total": {"code"},
    "apiserver_delegated_authz_request_duration_seconds": {"code"},
    "apiserver_client_certificate_expiration_seconds": set(),
    "apiserver_tls_handshake_errors_total": set(),
    "rest_client_requests_total": {"code", "method", "host"},
    "process_cpu_seconds_total": set(),
    "process_resident_memory_bytes": set(),
    "process_open_fds": set(),
    "process_start_time_seconds": set(),
}

ON_OCCASION = {name for name in NAMES if name.startswith(("apiserver_delegated", "authentication_token_cache", "rest_client"))} | {
    "apiserver_request_terminations_total"
}


async def families(api: Api) -> dict[str, Metric]:
    answer = await api.get("/metrics")
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    found = {}
    for line in answer.body.decode().splitlines():
        if line.startswith("# TYPE "):
            found[line.split()[2]] = line.split()[3]
    parsed = {each.name: each for each in text_string_to_metric_families(answer.body.decode())}
    return {name: parsed.get(name) or parsed[name.removesuffix("_total")] for name in found}


@pytest.mark.parametrize("name", NAMES)
async def test_names_and_labels_are_gos(api: Api, name: str) -> None:
    await api.make(widget("w"))
    async with api.watch("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1&timeoutSeconds=1") as events:
        assert [(await anext(events))["type"] for _ in range(2)] == ["ADDED", "BOOKMARK"]
        found = (await families(api))[name]
    assert found.samples or name in ON_OCCASION
    for sample in found.samples:
        assert set(sample.labels) - {"le"} == NAMES[name], sample


async def test_requests_are_counted_by_verb_and_code(api: Api) -> None:
    made = await api.make(widget("w"))
    await api.get()
    await api.get("w")
    await api.get("absent")
    await api.call("PUT", "w", made)
    await api.patch("w", {"spec": {"size": 2}})
    await api.call("POST", "?dryRun=All", widget("dry"))
    await api.call("DELETE", "w")
    await api.call("DELETE", "")
    total = (await families(api))["apiserver_request_total"]
    counted = {
        (each.labels["verb"], each.labels["dry_run"], each.labels["code"]): each.value for each in total.samples if each.labels["resource"]
    }
    assert counted == {
        ("POST", "", "201"): 1, ("LIST", "", "200"): 1, ("GET", "", "200"): 1, ("GET", "", "404"): 1, ("PUT", "", "200"): 1,
        ("PATCH", "", "200"): 1, ("POST", "All", "201"): 1, ("DELETE", "", "200"): 1, ("DELETECOLLECTION", "", "200"): 1,
    }  # fmt: skip


async def test_a_credential_that_is_wrong_is_an_error_under_gos_name(api: Api, pki: Pki) -> None:
    untrusted = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=pki.client()))
    async with untrusted, untrusted.get(f"{api.url}/apis", headers={"Authorization": "Bearer bad"}) as refused:
        assert refused.status == 401
    attempts = (await families(api))["authentication_attempts"]
    assert {each.labels["result"]: each.value for each in attempts.samples}["error"] == 1


async def test_a_watch_that_its_client_closes_is_a_success(api: Api) -> None:
    async with api.watch(""):
        pass
    async with asyncio.timeout(30):
        while True:
            found = await families(api)
            counted = [each for each in found["apiserver_request_total"].samples if each.labels["verb"] == "WATCH"]
            if counted:
                break
            await asyncio.sleep(0.02)
    assert [(each.labels["code"], each.value) for each in counted] == [("200", 1)]
    assert not found["apiserver_request_aborts_total"].samples


async def test_lists_are_counted_with_what_they_read_and_return(api: Api) -> None:
    for name in "abc":
        await api.make(widget(name))
    await api.get()
    await api.get("?limit=2")
    await api.get("?labelSelector=no")
    await api.get("?resourceVersion=0&fieldSelector=metadata.name%3Da")
    found = await families(api)

    def of(name: str, **labels: str) -> float:
        return next(each.value for each in found[name].samples if labels.items() <= each.labels.items())

    assert of("apiserver_cache_list_total", resource="widgets") == 4
    assert of("apiserver_cache_list_fetched_objects_total", resource="widgets") == 3 + 2 + 3 + 1
    assert of("apiserver_cache_list_returned_objects_total", resource="widgets") == 3 + 2 + 0 + 1
    assert of("apiserver_watch_cache_consistent_read_total", success="true", fallback="false") == 3
    assert of("apiserver_watch_cache_events_dispatched_total", resource="widgets") == 3


async def test_the_body_of_a_write_and_storage_are_measured(api: Api) -> None:
    await api.make(widget("w"))
    found = await families(api)
    sizes = {each.labels["verb"]: each.value for each in found["apiserver_request_body_size_bytes"].samples if each.name.endswith("_count")}
    assert sizes == {"create": 1}
    operations = {each.labels["operation"] for each in found["etcd_requests_total"].samples if each.labels["resource"] == "widgets"}
    assert {"create", "list"} <= operations
    objects = [each.value for each in found["apiserver_storage_objects"].samples if each.labels["resource"] == "widgets.example.test"]
    assert objects == [1]
