from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from storage.memory import MemoryStorage
from storage.port import TooLarge
from tests.component.apiserver.conftest import Answer, Api, Pki, serving
from tests.component.apiserver.test_delegation import REVIEWS, Cluster, cluster
from tests.component.apiserver.widgets import OLD_WIDGETS, WIDGETS, widget

__all__ = ["cluster"]

Apply = Callable[..., Awaitable[Answer]]


def body(name: str = "s", **spec: Any) -> dict[str, Any]:
    return widget(name, **spec)


async def applied(api: Api, manager: str, obj: Any, more: str = "", path: str = "s") -> Answer:
    raw = obj if isinstance(obj, bytes) else json.dumps(obj).encode()
    query = f"fieldManager={manager}{more}" if manager else more.lstrip("&")
    return await api.call("PATCH", f"{path}?{query}", raw, Content_Type="application/apply-patch+yaml")


def owners(obj: Any) -> dict[tuple[str, str, str], Any]:
    entries = obj["metadata"].get("managedFields") or []
    return {(each["manager"], each["operation"], each.get("subresource", "")): each["fieldsV1"] for each in entries}


async def test_ssa_01_apply_creates_absent_and_merges_existing_objects(api: Api) -> None:
    made = await applied(api, "a", b"apiVersion: example.test/v1\nkind: Widget\nmetadata: {name: s}\nspec:\n  size: 3\n")
    assert made.code == 201
    assert made.json["spec"]["size"] == 3
    assert made.json["metadata"]["generation"] == 1
    again = await applied(api, "a", body(size=4))
    assert (again.code, again.json["spec"]["size"], again.json["metadata"]["generation"]) == (200, 4, 2)


async def test_ssa_02_manager_is_required_and_force_is_for_apply_only(api: Api) -> None:
    refused = await applied(api, "", body(size=1))
    assert refused.code == 422
    assert "fieldManager: Required value: is required for apply patch" in refused.json["message"]
    await api.make(widget())
    refused = await api.patch("w1?force=true", {})
    assert refused.code == 422
    assert "may not be specified for non-apply patch" in refused.json["message"]
    assert (await api.patch("w1?force=false", {})).code == 422
    nameless = await applied(api, "a", {"apiVersion": "example.test/v1", "kind": "Widget", "spec": {"size": 1}})
    assert (nameless.code, "name must be provided" in nameless.json["message"]) == (400, True)


async def test_ssa_03_conflicts_name_each_field_and_who_owns_it(api: Api) -> None:
    await applied(api, "a", body(size=1))
    await api.patch("s?fieldManager=u", {"spec": {"color": "green"}})
    refused = await applied(api, "b", body(size=2, color="red"))
    assert (refused.code, refused.json["reason"]) == (409, "Conflict")
    assert refused.json["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "a"', "field": ".spec.size"},
        {"reason": "FieldManagerConflict", "message": 'conflict with "u" using example.test/v1', "field": ".spec.color"},
    ]
    assert refused.json["message"] == (
        'Apply failed with 2 conflicts: conflicts with "a":\n- .spec.size\nconflicts with "u" using example.test/v1:\n- .spec.color'
    )
    forced = await applied(api, "b", body(size=2, color="red"), "&force=true")
    assert (forced.code, forced.json["spec"]["size"], forced.json["spec"]["color"]) == (200, 2, "red")
    assert owners(forced.json) == {("b", "Apply", ""): {"f:spec": {"f:color": {}, "f:size": {}}}}


async def test_ssa_05_entries_are_written_in_gos_order_and_grammar(api: Api) -> None:
    made = (
        await applied(api, "a", {**body(parts=[{"name": "y"}, {"name": "x"}]), "metadata": {"name": "s", "finalizers": ["b/b", "a/a"]}})
    ).json
    [entry] = made["metadata"]["managedFields"]
    assert list(entry) == ["manager", "operation", "apiVersion", "time", "fieldsType", "fieldsV1"]
    assert (entry["operation"], entry["apiVersion"], entry["fieldsType"]) == ("Apply", "example.test/v1", "FieldsV1")
    assert json.dumps(entry["fieldsV1"]) == json.dumps(
        {
            "f:metadata": {"f:finalizers": {'v:"a/a"': {}, 'v:"b/b"': {}}},
            "f:spec": {
                "f:parts": {
                    'k:{"name":"x"}': {".": {}, "f:name": {}},
                    'k:{"name":"y"}': {".": {}, "f:name": {}},
                }
            },
        }
    )


async def test_ssa_06_omitted_fields_are_removed_unless_owned(api: Api) -> None:
    await applied(api, "a", body(size=3, color="green", parts=[{"name": "x"}, {"name": "y"}]))
    await applied(api, "b", body(parts=[{"name": "y"}]))
    left = (await applied(api, "a", body(size=3))).json
    assert left["spec"]["parts"] == [{"name": "y"}]
    assert "color" not in left["spec"]
    assert ("b", "Apply", "") in owners(left)


async def test_ssa_07_and_meta_05_writes_move_ownership(api: Api) -> None:
    await applied(api, "a", body(size=1, slot="x"))
    patched = (await api.patch("s?fieldManager=u", {"spec": {"size": 2}})).json
    assert owners(patched) == {
        ("a", "Apply", ""): {"f:spec": {"f:slot": {}}},
        ("u", "Update", ""): {"f:spec": {"f:size": {}}},
    }
    made = (await api.call("POST", "", widget("other", size=5), User_Agent="tool/1.2 (linux)")).json
    assert owners(made) == {("tool", "Update", ""): {"f:spec": {"f:size": {}}}}
    replaced = (await api.call("PUT", "other?fieldManager=p", {**made, "spec": {"size": 6}})).json
    assert owners(replaced) == {("p", "Update", ""): {"f:spec": {"f:size": {}}}}
    painted = (await api.call("POST", "other/paint?fieldManager=v", {})).json
    assert owners(painted)["v", "Update", "paint"] == {"f:spec": {"f:color": {}}, "f:status": {".": {}, "f:phase": {}}}


async def test_ssa_08_old_updaters_are_folded_and_untracked_tracked(api: Api) -> None:
    await api.make(widget("s"))
    for number in range(12):
        await api.patch(f"s?fieldManager=m{number:02}", {"metadata": {"labels": {f"l{number}": "1"}}})
    updaters = [each["manager"] for each in (await api.get("s")).json["metadata"]["managedFields"]]
    assert len(updaters) == 10
    assert "ancient-changes" in updaters
    forgotten = (await api.patch("s", {"metadata": {"managedFields": []}})).json
    assert "managedFields" not in forgotten["metadata"]
    assert "managedFields" not in (await api.patch("s", {"spec": {"size": 7}})).json["metadata"]
    begun = (await applied(api, "a", body(slot="z"))).json
    assert set(owners(begun)) == {("a", "Apply", ""), ("before-first-apply", "Update", "")}
    assert owners(begun)["before-first-apply", "Update", ""]["f:spec"] == {"f:size": {}}


async def test_ssa_09_managed_fields_are_the_servers_but_resettable(api: Api) -> None:
    refused = await applied(api, "a", {**body(), "metadata": {"name": "s", "managedFields": []}})
    assert (refused.code, refused.json["message"]) == (400, "metadata.managedFields must be nil")
    made = (await applied(api, "a", body(size=1))).json
    broken = {**made, "metadata": {**made["metadata"], "managedFields": [{"manager": "x", "operation": "Never", "apiVersion": "v1"}]}}
    kept = await api.call("PUT", "s", broken)
    assert (kept.code, owners(kept.json)) == (200, owners(made))
    reset = {**made, "metadata": {**made["metadata"], "managedFields": [{}]}}
    assert "managedFields" not in (await api.call("PUT", "s", reset)).json["metadata"]


async def test_ssa_10_status_and_rest_have_owners_per_endpoint(api: Api) -> None:
    made = (await applied(api, "a", {**body(size=1), "status": {"phase": "Wrong"}})).json
    assert owners(made) == {("a", "Apply", ""): {"f:spec": {"f:size": {}}}}
    status = await applied(api, "c", {**body(size=9), "status": {"phase": "Up"}}, path="s/status")
    assert (status.code, status.json["status"], status.json["spec"]["size"]) == (200, {"phase": "Up"}, 1)
    assert owners(status.json)["c", "Apply", "status"] == {"f:status": {"f:phase": {}}}
    patched = (await api.patch("s/status?fieldManager=c", {"status": {"phase": "Down"}, "metadata": {"labels": {"a": "b"}}})).json
    assert owners(patched)["c", "Update", "status"] == {"f:status": {"f:phase": {}}}
    assert ("c", "Apply", "status") not in owners(patched)
    assert (await applied(api, "c", body(), path="absent/status")).code == 404


async def test_ssa_10_status_write_keeps_omitted_metadata_and_owners(api: Api) -> None:
    labelled = {**body(size=1), "metadata": {"name": "s", "labels": {"a": "b"}, "annotations": {"c": "d"}}}
    made = (await applied(api, "a", labelled)).json
    short = {**made, "metadata": {key: made["metadata"][key] for key in ("name", "uid", "resourceVersion")}, "status": {"phase": "Up"}}
    written = (await api.call("PUT", "s/status?fieldManager=c", {**short, "spec": {}})).json
    assert (written["metadata"]["labels"], written["metadata"]["annotations"]) == ({"a": "b"}, {"c": "d"})
    assert (written["spec"], written["status"]) == (made["spec"], {"phase": "Up"})
    assert owners(written) == {**owners(made), ("c", "Update", "status"): {"f:status": {".": {}, "f:phase": {}}}}


async def test_ssa_11_a_scale_owns_the_replicas_of_its_object(api: Api) -> None:
    await applied(api, "a", body(size=1, replicas=2))
    scaled = await api.patch("s/scale?fieldManager=hpa", {"spec": {"replicas": 5}})
    assert scaled.code == 200
    now = (await api.get("s")).json
    assert owners(now)["hpa", "Update", "scale"] == {"f:spec": {"f:replicas": {}}}
    refused = await applied(api, "a", body(size=1, replicas=2))
    assert refused.json["details"]["causes"] == [
        {
            "reason": "FieldManagerConflict",
            "message": 'conflict with "hpa" with subresource "scale" using example.test/v1',
            "field": ".spec.replicas",
        }
    ]
    assert (await applied(api, "a", body(size=1))).json["spec"]["replicas"] == 5


async def test_ssa_12_kubectl_takes_over_what_it_applied_before(api: Api) -> None:
    was = body(size=1)
    noted = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(was)}
    await api.call("POST", "?fieldManager=kubectl-client-side-apply", {**was, "metadata": {"name": "s", "annotations": noted}})
    assert (await applied(api, "else", body(size=2))).code == 409
    taken = await applied(api, "kubectl", body(size=2))
    assert (taken.code, taken.json["spec"]["size"]) == (200, 2)
    follows = json.loads(taken.json["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"])
    assert follows["spec"] == {"size": 2}


async def test_ssa_13_and_upd_07_to_say_the_same_again_writes_nothing(api: Api) -> None:
    first = (await applied(api, "a", body(size=1))).json
    second = (await applied(api, "a", body(size=1))).json
    assert second == first
    async with api.watch(f"resourceVersion={first['metadata']['resourceVersion']}&timeoutSeconds=1") as events:
        for _ in range(2):
            await api.patch("s?fieldManager=u", {"spec": {"size": 1}})
            await api.call("PUT", "s?fieldManager=u", {**first, "metadata": {**first["metadata"], "managedFields": None}})
            await applied(api, "a", body(size=1), "&force=true")
        assert [event async for event in events] == []
    assert (await api.get("s")).json == first


async def test_ssa_14_unknown_field_is_422_in_gos_words(api: Api) -> None:
    refused = await applied(api, "a", body(foo=1), "&fieldValidation=Ignore")
    assert (refused.code, refused.json["reason"]) == (422, "Invalid")
    assert refused.json["message"] == (
        "failed to create typed patch object (/s; example.test/v1, Kind=Widget): .spec.foo: field not declared in schema"
    )
    assert refused.json["details"]["causes"][0]["field"] == "spec.foo"
    wrong = await applied(api, "a", body(size="big"))
    assert wrong.json["message"].endswith(".spec.size: expected numeric (int or float), got string")


async def test_known_alias_of_a_field_is_explained_by_every_write(api: Api) -> None:
    hint = 'unknown field "spec.theirs": write spec.size'
    refused = await applied(api, "a", body(theirs=1))
    assert refused.json["message"].endswith(".spec.theirs: field not declared in schema; spec.theirs: write spec.size")
    assert refused.json["details"]["causes"][0]["message"] == "field not declared in schema: write spec.size"
    created = await api.call("POST", "", widget("n") | {"spec": {"theirs": 1}})
    assert created.headers["Warning"] == f"299 - {json.dumps(hint)}"
    await applied(api, "a", body(size=1))
    again = await applied(api, "a", body(theirs=1))
    assert "; spec.theirs: write spec.size" in again.json["message"]


async def test_ssa_15_duplicate_keys_are_refused_or_warned_of(api: Api) -> None:
    twice = b"apiVersion: example.test/v1\nkind: Widget\nmetadata: {name: s}\nspec:\n  size: 1\n  size: 2\n"
    strict = await applied(api, "a", twice, "&fieldValidation=Strict")
    assert strict.code == 400
    assert strict.json["message"].startswith("error strict decoding YAML: ")
    flow = b"{apiVersion: example.test/v1, kind: Widget, metadata: {name: s}, spec: {size: 1}}"
    assert (await applied(api, "a", flow, "&dryRun=All")).code == 201
    twice_in_json = b'{"apiVersion":"example.test/v1","kind":"Widget","metadata":{"name":"s"},"spec":{"size":1,"size":2}}'
    assert (await applied(api, "a", twice_in_json, "&fieldValidation=Strict")).code == 400
    assert (await applied(api, "a", b'{"not": json', "")).code == 400
    warned = await applied(api, "a", twice)
    assert warned.code == 201
    assert 'duplicate field \\"spec.size\\"' in warned.headers["Warning"]


async def test_ssa_16_an_applier_keeps_one_entry_across_versions(pki: Pki) -> None:
    async with serving(pki, versions=True) as api:
        old = {"apiVersion": OLD_WIDGETS.api_version, "kind": "Widget", "metadata": {"name": "s"}, "spec": {"extent": 1, "paint": "green"}}
        path = f"{OLD_WIDGETS.path('acc')}/s"
        assert (await applied(api, "a", old, path=path)).code == 201
        new = await applied(api, "a", body(size=2))
        assert (new.code, new.json["spec"]) == (200, {"size": 2})
        [entry] = new.json["metadata"]["managedFields"]
        assert (entry["apiVersion"], entry["fieldsV1"]) == (WIDGETS.api_version, {"f:spec": {"f:size": {}}})
        await api.call("PATCH", f"{path}?fieldManager=u", {"spec": {"extent": 5}}, Content_Type="application/merge-patch+json")
        refused = await applied(api, "a", body(size=2))
        assert refused.json["details"]["causes"][0]["message"] == 'conflict with "u" using example.test/v1beta1'


async def test_ssa_17_apply_respects_uid_and_revision(api: Api) -> None:
    refused = await applied(api, "a", {**body("nosuch"), "metadata": {"name": "nosuch", "uid": "x"}}, path="nosuch")
    assert (refused.code, refused.json["reason"]) == (409, "Conflict")
    why = "uid mismatch: the provided object specified uid x, and no existing object was found"
    assert refused.json["message"] == f'Operation cannot be fulfilled on widgets.example.test "nosuch": {why}'
    assert (await api.get("nosuch")).code == 404
    made = (await applied(api, "a", body(size=1))).json
    await api.patch("s", {"spec": {"slot": "x"}})
    stale = {**body(size=2), "metadata": {"name": "s", "resourceVersion": made["metadata"]["resourceVersion"]}}
    assert (await applied(api, "a", stale)).code == 409
    assert (await applied(api, "a", {**body(), "metadata": {"name": "s", "uid": "else"}})).code == 409
    assert (await applied(api, "a", body("else"))).code == 400


async def test_ssa_18_and_dry_01_dry_run_shows_but_stores_nothing(api: Api) -> None:
    shown = await applied(api, "a", body(size=1), "&dryRun=All")
    assert shown.code == 201
    assert owners(shown.json) == {("a", "Apply", ""): {"f:spec": {"f:size": {}}}}
    assert (await api.get("s")).code == 404
    made = (await applied(api, "a", body(size=1))).json
    assert (await applied(api, "a", body(size=2), "&dryRun=All")).json["spec"]["size"] == 2
    assert (await api.get("s")).json == made


async def test_ssa_19_duplicates_pass_an_update_and_fail_an_apply(api: Api) -> None:
    made = await api.make(widget("s", parts=[{"name": "x"}, {"name": "x"}]), "?fieldManager=u")
    assert owners(made)["u", "Update", ""]["f:spec"]["f:parts"] == {".": {}, 'k:{"name":"x"}': {}}
    refused = await applied(api, "a", body(parts=[{"name": "x"}, {"name": "x"}]))
    assert refused.code == 422
    assert '.spec.parts: duplicate entries for key [name="x"]' in refused.json["message"]


async def test_auz_06_apply_creates_only_for_those_who_may_create(cluster: Cluster) -> None:
    async def as_user(user: str, method: str, name: str, obj: Any = None) -> tuple[int, Any]:
        headers = {"X-Remote-User": user, "Content-Type": "application/apply-patch+yaml"}
        data = json.dumps(obj).encode() if obj else None
        path = f"{WIDGETS.path('acc')}/{name}" + ("?fieldManager=a" if obj else "")
        return await cluster.ask("front-proxy-client", cluster.proxies, method, path, headers=headers, data=data)

    def admit(path: str, obj: dict[str, Any]) -> None:
        cluster.admit(path, obj)
        if path == REVIEWS and (obj["spec"]["user"], obj["spec"]["resourceAttributes"]["verb"]) == ("bob", "create"):
            obj["status"] = {"allowed": False}

    cluster.allowed_users.add("bob")
    cluster.kube.admit = admit
    assert (await as_user("alice", "PATCH", "s", body(size=1)))[0] == 201
    code, refused = await as_user("bob", "PATCH", "new", body("new"))
    assert (code, cluster.reviews[-1]["resourceAttributes"]["verb"]) == (403, "create")
    assert 'cannot create resource "widgets"' in refused["message"]
    assert (await as_user("alice", "GET", "new"))[0] == 404
    assert (await as_user("bob", "PATCH", "s", body(size=2)))[0] == 200


async def test_cre_12_object_too_large_with_owners_is_stored_without(pki: Pki) -> None:
    class Small(MemoryStorage):
        async def commit(self, conditions: Any, writes: Any) -> int:
            if any(b"managedFields" in getattr(each, "value", b"") for each in writes):
                raise TooLarge("etcdserver: request is too large")
            return await super().commit(conditions, writes)

    async with serving(pki, storage=Small()) as api:
        made = await api.make(widget())
        assert "managedFields" not in made["metadata"]
        assert (await api.patch("w1", {"spec": {"size": 9}})).json["spec"]["size"] == 9


async def test_oas_09_the_document_offers_apply_but_not_as_cbor(api: Api) -> None:
    document = (await api.get("/openapi/v3/apis/example.test/v1")).json
    patch = document["paths"]["/apis/example.test/v1/namespaces/{namespace}/widgets/{name}"]["patch"]
    assert "application/apply-patch+yaml" in patch["requestBody"]["content"]
    assert "application/apply-patch+cbor" not in patch["requestBody"]["content"]
    named = {each["name"] for each in patch["parameters"]}
    assert {"force", "fieldManager", "dryRun", "fieldValidation"} <= named
