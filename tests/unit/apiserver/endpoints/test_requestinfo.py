"""Requests' attributes, parsed as by Go's RequestInfoFactory."""

from __future__ import annotations

import pytest

from apiserver.endpoints.requestinfo import RequestInfo, parse

BASE = "/apis/kubevirt.io/v1alpha1"


@pytest.mark.parametrize(
    ("method", "path", "query", "verb", "namespace", "resource", "name", "subresource"),
    [
        ("GET", f"{BASE}/namespaces/n/vms", {}, "list", "n", "vms", "", ""),
        ("GET", f"{BASE}/vms", {}, "list", "", "vms", "", ""),
        ("GET", f"{BASE}/namespaces/n/vms/", {}, "list", "n", "vms", "", ""),
        ("GET", f"{BASE}/namespaces/n/vms/a", {}, "get", "n", "vms", "a", ""),
        ("HEAD", f"{BASE}/namespaces/n/vms/a", {}, "get", "n", "vms", "a", ""),
        ("GET", f"{BASE}/namespaces/n/vms", {"watch": "true"}, "watch", "n", "vms", "", ""),
        ("GET", f"{BASE}/namespaces/n/vms", {"watch": ""}, "watch", "n", "vms", "", ""),
        ("GET", f"{BASE}/namespaces/n/vms", {"watch": "False"}, "list", "n", "vms", "", ""),
        ("GET", f"{BASE}/namespaces/n/vms", {"watch": "0"}, "list", "n", "vms", "", ""),
        ("GET", f"{BASE}/namespaces/n/vms/a", {"watch": "1"}, "get", "n", "vms", "a", ""),
        ("GET", f"{BASE}/watch/namespaces/n/vms", {}, "watch", "n", "vms", "", ""),
        ("GET", f"{BASE}/namespaces//vms", {}, "list", "", "vms", "", ""),
        ("GET", f"{BASE}/watch/namespaces//vms", {}, "watch", "", "vms", "", ""),
        ("POST", f"{BASE}/namespaces/n/vms", {}, "create", "n", "vms", "", ""),
        ("PUT", f"{BASE}/namespaces/n/vms/a/status", {}, "update", "n", "vms", "a", "status"),
        ("PATCH", f"{BASE}/namespaces/n/vms/a", {}, "patch", "n", "vms", "a", ""),
        ("DELETE", f"{BASE}/namespaces/n/vms/a", {}, "delete", "n", "vms", "a", ""),
        ("DELETE", f"{BASE}/namespaces/n/vms", {}, "deletecollection", "n", "vms", "", ""),
        ("GET", f"{BASE}/namespaces/n/vms/a/console", {}, "get", "n", "vms", "a", "console"),
        ("GET", f"{BASE}/namespaces/n", {}, "get", "n", "namespaces", "n", ""),
        ("GET", f"{BASE}/namespaces/n/status", {}, "get", "n", "namespaces", "n", "status"),
    ],
)
def test_resource_requests(
    method: str, path: str, query: dict[str, str], verb: str, namespace: str, resource: str, name: str, subresource: str
) -> None:
    info = parse(method, path, query)
    assert info.is_resource
    assert (info.group, info.version) == ("kubevirt.io", "v1alpha1")
    assert (info.verb, info.namespace, info.resource, info.name, info.subresource) == (verb, namespace, resource, name, subresource)


@pytest.mark.parametrize("path", ["/", "", "/apis", "/apis/kubevirt.io", BASE, "/healthz", "/openapi/v3", "/apis//v1/x", f"{BASE}/watch"])
def test_everything_else_is_a_path(path: str) -> None:
    info = parse("GET", path, {})
    assert info == RequestInfo(method="GET", path=path, verb="get")
    assert not info.is_resource


def test_selected_name_counts_for_authorization_only() -> None:
    info = parse("GET", f"{BASE}/namespaces/n/vms", {"fieldSelector": "metadata.name=a", "watch": "1"})
    assert (info.verb, info.name, info.selected_name, info.scope) == ("watch", "a", True, "namespace")
    for narrow in ("metadata.name==a", "spec.b=c,metadata.name=a", "metadata.name=a,spec.b!=c"):
        assert parse("GET", f"{BASE}/namespaces/n/vms", {"fieldSelector": narrow}).name == "a"


@pytest.mark.parametrize(
    "selector",
    [
        "metadata.name!=a",
        "spec.b!=x\\,metadata.name=a",
        "spec.b=x\\,metadata.name=a",
        "metadata.name=a\\b",
        "x,metadata.name=a",
        "metadata.name=",
    ],
)
def test_selector_that_allows_other_names_selects_no_name(selector: str) -> None:
    info = parse("GET", f"{BASE}/namespaces/n/vms", {"fieldSelector": selector})
    assert (info.name, info.selected_name) == ("", False)


def test_path_after_a_subresource_is_kept() -> None:
    assert parse("GET", f"{BASE}/namespaces/n/vms/a/console/b/c", {}).rest == ("b", "c")


@pytest.mark.parametrize(("method", "mutating"), [("GET", False), ("POST", True), ("DELETE", True), ("PATCH", True)])
def test_writes_are_mutating(method: str, *, mutating: bool) -> None:
    assert parse(method, f"{BASE}/namespaces/n/vms/a", {}).mutating is mutating
