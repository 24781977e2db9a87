from __future__ import annotations

import asyncio
import re

import pytest

from apiserver.apis.meta.objects import Object
from tests.component.apiserver.conftest import NAMESPACE, Api
from tests.component.apiserver.widgets import WIDGETS, WidgetStrategy, widget


async def test_the_server_decides_uid_times_generation_and_revision(api: Api) -> None:
    body = widget(size=3)
    body["metadata"] |= {"uid": "x", "generation": 7, "creationTimestamp": "2000-01-01T00:00:00Z", "selfLink": "/x"}
    body["status"] = {"phase": "Mine"}
    made = await api.make(body)
    metadata = made["metadata"]
    assert re.fullmatch(r"[0-9a-f-]{36}", metadata["uid"])
    assert metadata["generation"] == 1
    assert re.fullmatch(r"20[2-9]\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", metadata["creationTimestamp"])
    assert metadata["namespace"] == NAMESPACE
    assert "selfLink" not in metadata
    assert "status" not in made
    doomed = widget("doomed", size=1)
    doomed["metadata"] |= {"deletionTimestamp": "2000-01-01T00:00:00Z", "deletionGracePeriodSeconds": 5}
    [entry] = (await api.make(doomed))["metadata"]["managedFields"]
    assert set(entry["fieldsV1"]) == {"f:spec"}
    assert (await api.get("w1")).json == made


@pytest.mark.parametrize(
    ("change", "code", "reason", "text"),
    [
        ({"kind": "Gadget"}, 400, "BadRequest", "does not match the expected kind"),
        ({"apiVersion": "example.test/v9"}, 400, "BadRequest", "does not match the expected API version"),
        ({"metadata": {"name": "w", "namespace": "other"}}, 400, "BadRequest", "does not match the namespace sent"),
        ({"metadata": {"name": "w", "resourceVersion": "1"}}, 400, "BadRequest", "should not be set on objects to be created"),
        ({"metadata": {}}, 422, "Invalid", "name or generateName is required"),
        ({"metadata": {"name": "A_b"}}, 422, "Invalid", "metadata.name: Invalid value"),
        ({"metadata": {"name": "w", "labels": {"a b": "c"}}}, 422, "Invalid", "metadata.labels"),
        ({"metadata": 5}, 422, "Invalid", "metadata"),
        ({"metadata": {"name": 5}}, 422, "Invalid", "metadata.name"),
        ({"spec": {"size": "x"}}, 422, "Invalid", "spec.size"),
        ({"spec": 5}, 422, "Invalid", "spec"),
        ({"spec": {"size": -1}}, 422, "Invalid", "spec.size: Invalid value: -1: must be greater than or equal to 0"),
    ],
)
async def test_a_wrong_object_is_refused_in_words(api: Api, change: dict[str, object], code: int, reason: str, text: str) -> None:
    answer = await api.call("POST", "", widget("w") | change)
    assert (answer.code, answer.json["code"], answer.json["reason"]) == (code, code, reason), answer.body
    assert text in answer.json["message"]


async def test_strict_validation_names_all_wrong_fields_at_once(api: Api) -> None:
    body = widget(size=-1, foo=1) | {"bar": {}}
    body["metadata"]["baz"] = 2
    answer = await api.call("POST", "?fieldValidation=Strict", body)
    assert answer.code == 422
    assert {each["field"] for each in answer.json["details"]["causes"]} == {"metadata.baz", "bar", "spec.foo", "spec.size"}


async def test_unknown_and_duplicate_fields_are_dropped_with_warnings(api: Api) -> None:
    raw = b'{"apiVersion":"example.test/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"foo":1,"size":1,"size":2}}'
    answer = await api.call("POST", "", raw)
    assert answer.code == 201
    assert answer.headers.getall("Warning") == ['299 - "duplicate field \\"spec.size\\""', '299 - "unknown field \\"spec.foo\\""']
    assert answer.json["spec"] == {"size": 2}
    silent = await api.call("PUT", "w?fieldValidation=Ignore", answer.json | {"x": 1})
    assert "Warning" not in silent.headers
    refused = await api.call("POST", "?fieldValidation=Strict", raw.replace(b'"w"', b'"w2"'))
    assert refused.code == 422


class Talking(WidgetStrategy):
    def warnings_on_update(self, obj: Object, old: Object) -> list[str]:
        before, after = (each["spec"].get("size", 0) for each in (old, obj))
        return [f"it grows from {before} to {after}"] if after > before else []

    def warnings_on_delete(self, obj: Object, grace_seconds: int | None) -> list[str]:
        return [] if grace_seconds is None else [f"{obj['metadata']['name']} takes longer than {grace_seconds} s"]


@pytest.mark.parametrize("strategy", [Talking()])
async def test_kinds_update_warning_is_in_the_response(api: Api) -> None:
    made = await api.make(widget(size=1))
    told = await api.call("PUT", "w1?dryRun=All", made | {"spec": {"size": 2}})
    assert (told.code, told.headers.getall("Warning")) == (200, ['299 - "it grows from 1 to 2"'])
    told = await api.patch("w1", {"spec": {"size": 3}})
    assert (told.code, told.headers.getall("Warning")) == (200, ['299 - "it grows from 1 to 3"'])
    for path, change in (("w1", {"spec": {"size": 2}}), ("w1/status", {"spec": {"size": 9}, "status": {}})):
        silent = await api.patch(path, change)
        assert (silent.code, "Warning" in silent.headers) == (200, False)


@pytest.mark.parametrize("strategy", [Talking()])
async def test_kinds_deletion_warning_is_in_the_response(api: Api) -> None:
    await api.make(widget())
    told = await api.call("DELETE", "w1?gracePeriodSeconds=3&dryRun=All")
    assert (told.code, told.headers.getall("Warning")) == (200, ['299 - "w1 takes longer than 3 s"'])
    told = await api.call("DELETE", "w1", {"gracePeriodSeconds": 0})
    assert (told.code, told.headers.getall("Warning")) == (200, ['299 - "w1 takes longer than 0 s"'])
    await api.make(widget())
    silent = await api.call("DELETE", "w1")
    assert (silent.code, "Warning" in silent.headers) == (200, False)


async def test_a_second_create_is_already_exists(api: Api) -> None:
    await api.make(widget())
    answer = await api.call("POST", "", widget())
    assert answer.json["reason"] == "AlreadyExists"
    assert answer.json["message"] == 'widgets.example.test "w1" already exists'
    assert answer.json["details"] == {"name": "w1", "group": "example.test", "kind": "widgets"}


async def test_generate_name_makes_names_that_differ(api: Api) -> None:
    body = {**widget(), "metadata": {"generateName": "a-"}}
    names = {(await api.make(body))["metadata"]["name"] for _ in range(20)}
    assert len(names) == 20
    assert all(re.fullmatch(r"a-[bcdfghjklmnpqrstvwxz2456789]{5}", each) for each in names)


async def test_an_update_grows_the_generation_only_with_the_spec(api: Api) -> None:
    made = await api.make(widget(size=1))
    labelled = (await api.patch("w1", {"metadata": {"labels": {"a": "b"}}})).json
    assert labelled["metadata"]["generation"] == 1
    resized = (await api.patch("w1", {"spec": {"size": 2}})).json
    assert resized["metadata"]["generation"] == 2
    status = (await api.patch("w1/status", {"status": {"phase": "Done"}, "spec": {"size": 9}, "metadata": {"labels": None}})).json
    assert status["metadata"]["generation"] == 2
    assert (status["spec"], status["status"], status["metadata"]["labels"]) == ({"size": 2}, {"phase": "Done"}, {"a": "b"})
    kept = (await api.patch("w1", {"status": {"phase": "Lost"}})).json
    assert kept["status"] == {"phase": "Done"}
    assert kept["metadata"]["uid"] == made["metadata"]["uid"]


@pytest.mark.parametrize("status", [{"phase": 5}, "lost", {"phase": {"deep": []}}, {"replicas": "many"}])
async def test_misshapen_status_is_ignored_in_objects_only(api: Api, status: object) -> None:
    made = await api.make({**widget(size=1), "status": status})
    assert "status" not in made
    await api.patch("w1/status", {"status": {"phase": "Done"}})
    kept = (await api.patch("w1", {"status": status})).json
    assert kept["status"] == {"phase": "Done"}
    replaced = await api.call("PUT", "w1", {**kept, "spec": {"size": 2}, "status": status})
    assert (replaced.json["spec"], replaced.json["status"]) == ({"size": 2}, {"phase": "Done"})
    assert (await api.patch("w1/status", {"status": status})).code == 422


async def test_an_update_from_an_old_revision_is_a_conflict(api: Api) -> None:
    made = await api.make(widget())
    made["spec"]["size"] = 2
    assert (await api.call("PUT", "w1", made)).code == 200
    answer = await api.call("PUT", "w1", made)
    assert (answer.code, answer.json["reason"]) == (409, "Conflict")
    assert answer.json["message"] == (
        'Operation cannot be fulfilled on widgets.example.test "w1": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )


async def test_update_needs_the_revision_and_the_same_identity(api: Api) -> None:
    made = await api.make(widget())
    bare = {**made, "metadata": {key: value for key, value in made["metadata"].items() if key != "resourceVersion"}}
    assert (await api.call("PUT", "w1", bare)).code == 422
    assert (await api.call("PUT", "w1/status", bare)).code == 422
    other = {**made, "metadata": made["metadata"] | {"uid": "00000000-0000-0000-0000-000000000000"}}
    assert (await api.call("PUT", "w1", other)).code == 409
    assert (await api.call("PUT", "w2", made)).code == 400
    unlocked = {**made, "metadata": made["metadata"] | {"resourceVersion": "0"}}
    assert (await api.call("PUT", "w1", unlocked)).code == 422
    nameless = {**made, "metadata": {key: value for key, value in made["metadata"].items() if key != "name"}}
    refused = await api.call("PUT", "w1", nameless)
    assert (refused.code, "name must be provided" in refused.json["message"]) == (400, True)
    assert (await api.call("PUT", "w2", widget("w2"))).code == 404


async def test_unchanged_object_is_not_written(api: Api) -> None:
    made = await api.make(widget(size=1))
    assert (await api.call("PUT", "w1", made)).json == made
    for kind, body in (("merge-patch+json", {}), ("json-patch+json", []), ("strategic-merge-patch+json", {"spec": {"size": 1}})):
        assert (await api.patch("w1", body, kind)).json == made


async def test_fifty_patches_at_once_all_succeed(api: Api) -> None:
    await api.make(widget())
    answers = []
    async with asyncio.TaskGroup() as tasks:
        answers = [tasks.create_task(api.patch("w1", {"metadata": {"labels": {f"l{i}": "1"}}})) for i in range(50)]
    assert {each.result().code for each in answers} == {200}
    assert len((await api.get("w1")).json["metadata"]["labels"]) == 50


async def test_each_patch_type_works_and_unknown_ones_are_415(api: Api) -> None:
    await api.make(widget(parts=[{"name": "a"}]))
    merged = await api.patch("w1", {"spec": {"parts": [{"name": "b"}]}}, "strategic-merge-patch+json")
    assert sorted(each["name"] for each in merged.json["spec"]["parts"]) == ["a", "b"]
    replaced = await api.patch("w1", [{"op": "replace", "path": "/spec/size", "value": 5}], "json-patch+json")
    assert replaced.json["spec"]["size"] == 5
    assert (await api.patch("w1", [{"op": "remove", "path": "/x"}], "json-patch+json")).code == 422
    assert (await api.patch("w1", {"op": "x"}, "json-patch+json")).code == 400
    assert (await api.patch("w1", {"spec": 5})).code == 422
    assert (await api.patch("w1", {"metadata": None})).code in {400, 422}
    assert (await api.patch("nope", {})).code == 404
    for kind in ("apply-patch+cbor", "x"):
        refused = await api.patch("w1", {}, kind)
        assert (refused.code, refused.json["reason"]) == (415, "UnsupportedMediaType")
        assert "application/merge-patch+json" in refused.json["message"]


async def test_delete_returns_success_or_the_finalized_object(api: Api) -> None:
    made = await api.make(widget("gone"))
    answer = (await api.call("DELETE", "gone")).json
    assert (answer["kind"], answer["status"], answer["details"]["uid"]) == ("Status", "Success", made["metadata"]["uid"])
    held = widget("held")
    held["metadata"]["finalizers"] = ["example.test/hold"]
    await api.make(held)
    marked = (await api.call("DELETE", "held")).json
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 0
    assert marked["metadata"]["generation"] == 2
    assert (await api.call("DELETE", "held")).json == marked
    more = await api.patch("held", {"metadata": {"finalizers": ["example.test/hold", "example.test/more"]}})
    assert more.code == 422
    assert (await api.call("POST", "", widget("held"))).json["message"].startswith("object is being deleted: ")
    released = await api.patch("held", {"metadata": {"finalizers": None}})
    assert released.code == 200
    assert (await api.get("held")).code == 404


async def test_delete_honours_preconditions_and_propagation(api: Api) -> None:
    await api.make(widget())
    assert (await api.call("DELETE", "w1", {"preconditions": {"uid": "x"}})).code == 409
    assert (await api.call("DELETE", "w1", {"preconditions": {"resourceVersion": "1"}})).code == 409
    assert (await api.call("DELETE", "w1?propagationPolicy=x")).code == 422
    assert (await api.call("DELETE", "w1", {"preconditions": 5})).code == 400
    foreground = (await api.call("DELETE", "w1", {"propagationPolicy": "Foreground"})).json
    assert foreground["metadata"]["finalizers"] == ["foregroundDeletion"]
    orphan = (await api.call("DELETE", "w1?propagationPolicy=Orphan")).json
    assert orphan["metadata"]["finalizers"] == ["orphan"]
    assert (await api.call("DELETE", "w1?propagationPolicy=Background")).json["status"] == "Success"


async def test_a_dry_run_goes_all_the_way_but_writes_nothing(api: Api) -> None:
    dry = await api.call("POST", "?dryRun=All", widget())
    assert dry.code == 201
    assert "resourceVersion" not in dry.json["metadata"]
    assert (await api.get("w1")).code == 404
    made = await api.make(widget())
    assert (await api.call("POST", "?dryRun=All", widget())).code == 409
    assert (await api.patch("w1?dryRun=All", {"spec": {"size": 8}})).json["spec"]["size"] == 8
    assert (await api.call("DELETE", "w1?dryRun=All")).code == 200
    assert (await api.get("w1")).json == made
    assert (await api.patch("w1?dryRun=Some", {})).code == 422


async def test_a_lock_is_held_by_one_object_until_it_gives_it_up(api: Api) -> None:
    await api.make(widget("a", slot="one"))
    taken = await api.call("POST", "", widget("b", slot="one"))
    assert (taken.code, taken.json["reason"]) == (409, "Conflict")
    assert f"{NAMESPACE}/a" in taken.json["message"]
    assert (await api.call("POST", "?dryRun=All", widget("b", slot="one"))).code == 409
    unnamed = await api.call("POST", "", {**widget(slot="one"), "metadata": {"generateName": "c-"}})
    assert unnamed.json["message"].startswith('Operation cannot be fulfilled on widgets.example.test "c-": ')
    twin = await api.call("PUT", "a/twin", {"slot": "one"})
    assert (twin.code, twin.json["reason"], twin.json["details"]["name"]) == (409, "Conflict", "a")
    assert twin.json["message"].startswith('Operation cannot be fulfilled on widgets.example.test "a": ')
    assert (await api.patch("a", {"spec": {"slot": "two"}})).code == 200
    await api.make(widget("b", slot="one"))
    assert (await api.patch("a", {"spec": {"slot": "one"}})).code == 409
    await api.call("DELETE", "b")
    assert (await api.patch("a", {"spec": {"slot": "one"}})).code == 200


async def test_of_many_that_want_one_lock_one_gets_it(api: Api) -> None:
    async with asyncio.TaskGroup() as tasks:
        answers = [tasks.create_task(api.call("POST", "", widget(f"w{i}", slot="x"))) for i in range(20)]
    assert sorted(each.result().code for each in answers) == [201] + [409] * 19


async def test_verbs_change_spec_and_status_in_one_write(api: Api) -> None:
    made = await api.make(widget())
    painted = await api.call("PUT", "w1/paint", {})
    assert painted.code == 200
    assert (painted.json["spec"]["color"], painted.json["status"]) == ("green", {"phase": "Painted"})
    assert painted.json["metadata"]["generation"] == 2
    assert int(painted.json["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])
    again = await api.call("POST", "w1/paint")
    assert (again.code, again.json["message"]) == (409, "it is green already")
    assert (await api.get("w1/paint")).code == 405
    assert (await api.call("PUT", "nope/paint")).code == 404
    twin = await api.call("POST", "w1/twin")
    assert twin.code == 201
    assert twin.json["metadata"]["name"].startswith("w1-")


async def test_a_write_is_read_at_once(api: Api) -> None:
    for i in range(50):
        await api.make(widget(f"w{i}"))
        assert (await api.get(f"w{i}")).code == 200
        assert len((await api.get()).json["items"]) == i + 1


async def test_missing_kind_and_version_default_to_the_urls(api: Api) -> None:
    made = (await api.call("POST", "", {"metadata": {"name": "w1"}})).json
    assert (made["apiVersion"], made["kind"]) == (WIDGETS.api_version, WIDGETS.kind)


async def test_unknown_path_is_404_with_known_paths_or_a_status(api: Api) -> None:
    for path in (f"/{WIDGETS.group}", "/nope"):
        answer = await api.get(path)
        assert answer.code == 404
        assert "/apis" in answer.json["paths"]
    unknown = await api.get("/apis/nope/v1")
    assert (unknown.code, unknown.json["reason"]) == (404, "NotFound")


async def test_unknown_resources_and_wrong_methods_are_statuses(api: Api) -> None:
    unknown = await api.get(f"/apis/{WIDGETS.group}/v1/namespaces/acc/gadgets")
    assert (unknown.code, unknown.json["reason"]) == (404, "NotFound")
    await api.make(widget())
    assert (await api.get("w1/nope")).json["reason"] == "NotFound"
    for method, path in (("POST", "w1"), ("HEAD", "w1"), ("DELETE", WIDGETS.path()), ("POST", WIDGETS.path()), ("OPTIONS", "w1")):
        assert (await api.call(method, path)).code == 405, (method, path)
    assert (await api.get("/apis/example.test/v1/namespaces/acc/widgets/")).code == 200
