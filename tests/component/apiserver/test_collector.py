from __future__ import annotations

import json
from typing import Any

from tests.component.apiserver.conftest import Answer, Api
from tests.component.apiserver.widgets import WIDGETS, widget


def _accept(kind: str) -> str:
    forms = (f"{media};as={kind};g=meta.k8s.io;v=v1" for media in ("application/vnd.kubernetes.protobuf", "application/json"))
    return ",".join((*forms, "application/json"))


ONE, MANY = _accept("PartialObjectMetadata"), _accept("PartialObjectMetadataList")
ANY = "application/vnd.kubernetes.protobuf,application/json"
STRATEGIC = "application/strategic-merge-patch+json"


async def owned(api: Api, name: str, *owners: Any, blocks: bool = False, finalizers: tuple[str, ...] = ()) -> Any:
    body = widget(name)
    body["metadata"]["ownerReferences"] = [
        {
            "apiVersion": WIDGETS.api_version,
            "kind": "Widget",
            "name": each["metadata"]["name"],
            "uid": each["metadata"]["uid"],
            "blockOwnerDeletion": blocks,
        }
        for each in owners
    ]
    body["metadata"]["finalizers"] = list(finalizers)
    return await api.make(body)


async def collect(api: Api, dependent: Any, **preconditions: str) -> Answer:
    options = {
        "kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background",
        "preconditions": {"uid": dependent["metadata"]["uid"], **preconditions},
    }  # fmt: skip
    return await api.call(
        "DELETE", dependent["metadata"]["name"], json.dumps(options).encode(), Accept=ANY, Content_Type="application/json"
    )


async def let_go(api: Api, owner: Any) -> Answer:
    metadata = (await api.get(owner["metadata"]["name"], Accept=ONE)).json["metadata"]
    rest = [each for each in metadata["finalizers"] if each != "foregroundDeletion"]
    body = {"metadata": {"resourceVersion": metadata["resourceVersion"], "finalizers": rest}}
    return await api.call(
        "PATCH", owner["metadata"]["name"], json.dumps(body).encode(), Accept=ONE, Content_Type="application/merge-patch+json"
    )


async def test_meta_11_orphan_is_collected_and_shared_dependent_freed(api: Api) -> None:
    gone, stays = await api.make(widget("gone")), await api.make(widget("stays"))
    orphan = await owned(api, "orphan", gone)
    shared = await owned(api, "shared", gone, stays)
    assert (await api.call("DELETE", "gone", {"propagationPolicy": "Background"})).json["status"] == "Success"

    listed = (await api.get(WIDGETS.path(), Accept=MANY)).json
    assert listed["kind"] == "PartialObjectMetadataList"
    refers = {each["metadata"]["name"]: len(each["metadata"].get("ownerReferences", ())) for each in listed["items"]}
    assert refers == {"orphan": 1, "shared": 2, "stays": 0}
    live = await api.get("orphan", Accept=ONE)
    assert (live.json["kind"], live.json["metadata"]["uid"]) == ("PartialObjectMetadata", orphan["metadata"]["uid"])
    assert (await api.get("gone", Accept=ONE)).code == 404

    await api.patch("orphan", {"metadata": {"labels": {"a": "b"}}})
    stale = await collect(api, orphan, resourceVersion=orphan["metadata"]["resourceVersion"])
    assert (stale.code, stale.json["reason"]) == (409, "Conflict")
    assert (await collect(api, orphan)).json["status"] == "Success"

    patch = {"metadata": {"ownerReferences": [{"$patch": "delete", "uid": gone["metadata"]["uid"]}], "uid": shared["metadata"]["uid"]}}
    freed = await api.call("PATCH", "shared", json.dumps(patch).encode(), Accept=ONE, Content_Type=STRATEGIC)
    assert (freed.code, freed.json["kind"]) == (200, "PartialObjectMetadata")
    assert [each["name"] for each in freed.json["metadata"]["ownerReferences"]] == ["stays"]
    patch["metadata"]["uid"] = gone["metadata"]["uid"]
    assert (await api.call("PATCH", "shared", json.dumps(patch).encode(), Accept=ONE, Content_Type=STRATEGIC)).code == 409


async def test_meta_12_foreground_deletion_waits_for_blockers(api: Api) -> None:
    owner = await api.make(widget("owner"))
    held = await owned(api, "held", owner, blocks=True, finalizers=("example.test/hold",))
    assert held["metadata"]["ownerReferences"][0]["blockOwnerDeletion"] is True
    marked = (await api.call("DELETE", "owner", {"propagationPolicy": "Foreground"})).json
    assert marked["metadata"]["finalizers"] == ["foregroundDeletion"]

    assert (await collect(api, held)).json["metadata"]["deletionTimestamp"]
    assert (await api.get("owner", Accept=ONE)).json["metadata"]["deletionTimestamp"]
    assert (await api.patch("held", {"metadata": {"finalizers": None}})).code == 200
    assert (await api.get("held")).code == 404
    released = await let_go(api, owner)
    assert (released.code, released.json["metadata"].get("finalizers")) == (200, None)
    assert (await api.get("owner")).code == 404
