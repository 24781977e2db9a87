from __future__ import annotations

from typing import Any

import pytest

from tests.testbed import release

TAGS = {name: f"localhost/kubevirt/{name}:dev" for name in ("virt-api", "virt-controller", "virt-handler", "virt-launcher", "etcd")}
IDENTIFIERS = {f"sha256:{name}-{age}": f"sha256:manifest-of-{name}-{age}" for name in TAGS for age in ("old", "new")}


def present(**ages: str) -> dict[str, dict[str, str]]:
    tags = {tag: f"sha256:manifest-of-{name}-{ages.get(name.replace('-', '_'), 'old')}" for name, tag in TAGS.items()}
    return dict.fromkeys(("node1", "node2"), IDENTIFIERS | tags)


def pod(component: str, *, first: str = "", node: str = "node1", age: str = "old", **metadata: str) -> dict[str, Any]:
    return {
        "metadata": {"labels": {"kubevirt.io": component}, **metadata},
        "spec": {
            "nodeName": node,
            "containers": [{"name": "main", "image": TAGS[component]}],
            **({"initContainers": [{"name": "first", "image": TAGS[first]}]} if first else {}),
        },
        "status": {
            "containerStatuses": [{"name": "main", "imageID": f"sha256:{component}-{age}"}],
            **({"initContainerStatuses": [{"name": "first", "imageID": f"sha256:{first}-{age}"}]} if first else {}),
        },
    }


PODS = [pod("etcd"), pod("virt-api"), pod("virt-api", node="node2"), pod("virt-controller"), pod("virt-handler", first="virt-launcher")]


@pytest.mark.parametrize(
    ("ages", "found"),
    [
        ({}, []),
        ({"virt_api": "new"}, ["virt-api"]),
        ({"virt_launcher": "new"}, ["virt-handler"]),
        ({"virt_handler": "new", "virt_controller": "new"}, ["virt-controller", "virt-handler"]),
        ({"etcd": "new"}, []),
    ],
)
def test_pods_of_earlier_contents_of_a_tag_are_outdated(ages: dict[str, str], found: list[str]) -> None:
    assert release.outdated_of(PODS, present(**ages)) == found


def test_pods_that_run_new_contents_or_end_are_not_outdated() -> None:
    nodes = present(virt_api="new")
    assert release.outdated_of([pod("virt-api", age="new"), pod("virt-api", deletionTimestamp="…")], nodes) == []
    assert release.outdated_of([pod("virt-api", age="new"), pod("virt-api", node="node2")], nodes) == ["virt-api"]


def test_pods_that_have_not_started_are_not_outdated() -> None:
    waiting = pod("virt-api")
    waiting["status"]["containerStatuses"][0]["imageID"] = ""
    unscheduled = {**pod("virt-api"), "spec": {"containers": []}, "status": {}}
    assert release.outdated_of([waiting, unscheduled, pod("virt-api", node="another")], present(virt_api="new")) == []
