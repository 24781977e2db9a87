from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from apiserver.admission.webhook.source import Source
from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.resources import Resource
from apiserver.client.informer import Informer
from apiserver.client.store import Callback, Store
from tests.fakes.versions import OneVersion

V1 = Resource("g.test", "v1", "things", "Thing")
V2 = Resource("g.test", "v2", "things", "Thing")
OURSELVES = Resource(
    "admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", namespaced=False
)


class _Informer:
    def __init__(self) -> None:
        self.store = Store({})

    def subscribe(self, callback: Callback) -> None:
        self.store.subscribe(callback)


class _Versions(OneVersion):
    def equivalents(self, resource: Resource) -> Sequence[Resource]:
        return (V1, V2)


def source() -> tuple[Source, Store]:
    informer = _Informer()
    return Source(cast(Informer, informer), _Versions()), informer.store


def configuration(name: str, *hooks: dict[str, Any], version: int = 1) -> Object:
    rule = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}
    given = [{"rules": [rule], **each} for each in hooks]
    return {"metadata": {"name": name, "uid": name, "resourceVersion": str(version)}, "webhooks": given}


def names(made: Source, operation: str = "CREATE", resource: Resource = V1, subresource: str = "") -> list[str]:
    return [each.webhook.name for each in made.candidates(operation, resource, subresource)]


def test_configurations_sort_by_name_and_keep_webhook_order() -> None:
    made, store = source()
    store.apply(configuration("b", {"name": "1"}))
    store.apply(configuration("a", {"name": "3"}, {"name": "2"}))
    assert names(made) == ["3", "2", "1"]
    assert [each.position for each in made.candidates("CREATE", V1, "")] == [0, 1, 2]


def test_the_index_is_kept_until_something_changes() -> None:
    made, store = source()
    store.apply(configuration("a", {"name": "1"}))
    first = made.candidates("CREATE", V1, "")
    assert made.candidates("CREATE", V1, "") is first
    store.apply(configuration("a", {"name": "2"}, version=2))
    assert names(made) == ["2"]
    store.delete(configuration("a", version=3))
    assert names(made) == []


def test_an_equivalent_version_matches_after_the_requested_one() -> None:
    made, store = source()
    of_v2 = [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["v2"], "resources": ["things"]}]
    store.apply(
        configuration(
            "a", {"name": "exact", "rules": of_v2, "matchPolicy": "Exact"}, {"name": "equivalent", "rules": of_v2}, {"name": "both"}
        )
    )  # fmt: skip
    found = made.candidates("CREATE", V1, "")
    assert [(each.webhook.name, each.resource) for each in found] == [("equivalent", V2), ("both", V1)]
    assert names(made, resource=V2) == ["exact", "equivalent", "both"]


def test_configurations_of_webhooks_are_never_asked_about() -> None:
    made, store = source()
    store.apply(configuration("a", {"name": "1"}))
    assert names(made, resource=OURSELVES) == []
