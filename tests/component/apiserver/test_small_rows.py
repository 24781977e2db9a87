"""Rows of docs/apiserver-checklist.md that are one request or two."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.component.apiserver.conftest import NAMESPACE, Api
from tests.component.apiserver.widgets import WIDGETS, widget

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


def owned(*owners: dict[str, Any]) -> dict[str, Any]:
    made = widget()
    made["metadata"]["ownerReferences"] = list(owners)
    return made


async def test_cre_10_owners_that_are_named_twice_are_kept_once_with_a_warning(api: Api) -> None:
    owner = {"apiVersion": "v1", "kind": "A", "name": "a", "uid": "1"}
    answer = await api.call("POST", "", owned(owner, owner, {**owner, "uid": "2"}))
    assert [each["uid"] for each in answer.json["metadata"]["ownerReferences"]] == ["1", "2"]
    (warning,) = answer.headers.getall("Warning")
    assert "duplicate entries" in warning
    assert warning.endswith('observed: 1"') or "observed" not in warning  # a warning is cut at 256 characters


async def test_del_03_and_07_deletes_that_wait_are_202_on_request_and_wrong_options_are_refused(api: Api) -> None:
    held = widget()
    held["metadata"]["finalizers"] = ["a.b/c"]
    await api.make(held)
    for query in ("propagationPolicy=x", "dryRun=x", "propagationPolicy=Orphan&orphanDependents=true"):
        assert (await api.call("DELETE", f"w1?{query}")).code == 422, query
    assert (await api.call("DELETE", "w1", {"orphanDependents": False})).code == 202


async def test_lst_11_a_list_shows_what_was_written_before_it_was_asked(api: Api) -> None:
    async def one(number: int) -> bool:
        await api.make(widget(f"q{number}"))
        return any(each["metadata"]["name"] == f"q{number}" for each in (await api.get()).json["items"])

    for first in range(0, 60, 10):
        async with asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(one(number)) for number in range(first, first + 10)]
        assert all(each.result() for each in asked)


async def test_wch_08_a_watch_without_initial_events_begins_with_what_changes(api: Api) -> None:
    await api.make(widget())
    query = "watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&timeoutSeconds=1"
    answer = await api.get(f"?{query}")
    assert (answer.code, answer.body) == (200, b"")


async def test_tbl_04_and_05_errors_and_success_are_no_tables_and_protobuf_is_no_form_of_one(api: Api) -> None:
    await api.make(widget())
    assert (await api.get("nope", Accept=TABLE)).json["kind"] == "Status"
    assert (await api.get("", Accept="application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io")).code == 406
    deleted = (await api.call("DELETE", "w1", None, Accept=TABLE)).json
    assert (deleted["kind"], deleted["status"]) == ("Status", "Success")


async def test_sub_09_and_req_10_unknown_subresources_are_404_and_the_old_path_of_a_watch_is_served(api: Api) -> None:
    await api.make(widget())
    unknown = await api.get("w1/nosuch")
    assert (unknown.code, unknown.json["kind"]) == (404, "Status")
    path = f"/apis/{WIDGETS.group}/v1/watch/namespaces/{NAMESPACE}/widgets?timeoutSeconds=1"
    assert b'"type":"ADDED"' in (await api.get(path)).body


async def test_agg_10_discovery_says_what_kubectl_resolves_short_names_by(api: Api) -> None:
    main = next(each for each in (await api.get("/apis/example.test/v1")).json["resources"] if each["name"] == "widgets")
    assert (main["shortNames"], main["singularName"], main["categories"]) == (["wd"], "widget", ["toys"])
