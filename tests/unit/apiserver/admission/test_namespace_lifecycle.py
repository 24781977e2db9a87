"""The same checks as ``k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle``."""

from __future__ import annotations

from typing import cast

import pytest

from apiserver.admission.namespace_lifecycle import NamespaceLifecycle
from apiserver.admission.namespaces import Namespaces, trim
from apiserver.apis.meta.errors import Forbidden, NotFound, ServiceUnavailable
from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.resources import Resource
from apiserver.client.informer import Informer
from apiserver.client.rest import Client, TransportError
from apiserver.registry.generic.admission import Attributes
from tests.fakes.admission import asking

THINGS = Resource("g.test", "v1", "things", "Thing")
RACKS = Resource("g.test", "v1", "racks", "Rack", namespaced=False)
GONE = {"metadata": {"name": "going", "deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": "Active"}}
TERMINATING = {"metadata": {"name": "ending"}, "status": {"phase": "Terminating"}}
ACTIVE = {"metadata": {"name": "here"}, "status": {"phase": "Active"}}


class _Copy:
    def __init__(self, *objects: Object) -> None:
        self._objects = {each["metadata"]["name"]: each for each in objects}

    def get(self, namespace: str, name: str) -> Object | None:
        return self._objects.get(name)


class _Cluster(_Copy):
    """The client: namespaces as they are, which the local copy may lag behind. Without ``answers``, requests fail."""

    def __init__(self, *objects: Object, answers: bool = True) -> None:
        super().__init__(*objects)
        self.asked: list[str] = []
        self._answers = answers

    async def get(self, resource: Resource, name: str) -> Object:  # type: ignore[override]  # a client's
        self.asked.append(name)
        if not self._answers:
            raise TransportError("GET: refused")
        found = self._objects.get(name)
        if found is None:
            raise NotFound(f'namespaces "{name}" not found')
        return found


def guard(copy: _Copy, cluster: _Cluster) -> NamespaceLifecycle:
    return NamespaceLifecycle(Namespaces(cast(Informer, copy), cast(Client, cluster)))


def created(namespace: str) -> Attributes:
    return asking("CREATE", THINGS, namespace=namespace, name="t")


def test_only_creations_in_namespaces_are_judged() -> None:
    plugin = guard(_Copy(), _Cluster())
    assert plugin.handles("CREATE", THINGS, "")
    assert not any(plugin.handles(operation, THINGS, "") for operation in ("UPDATE", "DELETE", "CONNECT"))
    assert not plugin.handles("CREATE", RACKS, "")


async def test_a_known_namespace_is_not_looked_up() -> None:
    cluster = _Cluster()
    await guard(_Copy(ACTIVE), cluster).mutate(created("here"))
    assert cluster.asked == []


async def test_an_unknown_namespace_is_looked_up_and_may_exist() -> None:
    cluster = _Cluster(ACTIVE)
    await guard(_Copy(), cluster).mutate(created("here"))
    assert cluster.asked == ["here"]


async def test_an_absent_namespace_is_not_found() -> None:
    with pytest.raises(NotFound, match=r'^namespaces "nope" not found$'):
        await guard(_Copy(), _Cluster()).mutate(created("nope"))


@pytest.mark.parametrize("namespace", [GONE, TERMINATING], ids=["deleted", "terminating"])
async def test_nothing_is_made_in_a_namespace_that_goes(namespace: Object) -> None:
    name = namespace["metadata"]["name"]
    with pytest.raises(Forbidden) as caught:
        await guard(_Copy(namespace), _Cluster()).mutate(created(name))
    why = f"unable to create new content in namespace {name} because it is being terminated"
    assert caught.value.message == f'things.g.test "t" is forbidden: {why}'
    assert caught.value.to_json()["details"]["causes"] == [
        {"reason": "NamespaceTerminating", "message": f"namespace {name} is being terminated", "field": "metadata.namespace"}
    ]


async def test_object_without_name_is_reported_by_generate_name() -> None:
    attributes = asking("CREATE", THINGS, namespace="ending", obj={"metadata": {"generateName": "t-"}})
    with pytest.raises(Forbidden, match=r'^things\.g\.test "t-" is forbidden: unable to create new content'):
        await guard(_Copy(TERMINATING), _Cluster()).mutate(attributes)


async def test_unreadable_namespace_asks_the_client_to_retry() -> None:
    with pytest.raises(ServiceUnavailable) as caught:
        await guard(_Copy(), _Cluster(answers=False)).mutate(created("here"))
    assert caught.value.details.retry_after_seconds == 1


def test_of_a_namespace_everything_is_kept_but_who_wrote_what() -> None:
    given = {"metadata": {"name": "n", "labels": {"a": "b"}, "managedFields": [{}]}, "spec": {"finalizers": []}}
    assert trim(given) == {"metadata": {"name": "n", "labels": {"a": "b"}}, "spec": {"finalizers": []}}
