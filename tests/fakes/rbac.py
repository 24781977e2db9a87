"""An account's rights by the chart's roles, for :attr:`tests.fakes.kubeapi.FakeAPI.authorize`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from apiserver.endpoints import requestinfo
from tests.fakes import chart

Rule = dict[str, Any]
Grant = tuple[str, Rule]
"""(namespace, empty for all; rule)."""

EVERYBODY: Final = frozenset({("authentication.k8s.io", "selfsubjectreviews", "", "create", "")})
"""The used part of ``system:basic-user``."""


def grants(account: str) -> list[Grant]:
    objects = chart.objects()
    roles = {(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]): each.get("rules") for each in objects}
    found: list[Grant] = []
    for each in objects:
        if each["kind"] not in {"RoleBinding", "ClusterRoleBinding"} or account not in {subject["name"] for subject in each["subjects"]}:
            continue
        namespace = each["metadata"].get("namespace")
        role = each["roleRef"]
        rules = roles.get((role["kind"], namespace if role["kind"] == "Role" else None, role["name"]))
        found += [(namespace or "", rule) for rule in rules or ()]
    return found


def permissions(account: str) -> Iterator[tuple[str, str, str, str, str]]:
    for namespace, rule in grants(account):
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for name in rule.get("resourceNames", [""]):
                    yield from ((group, resource, name, verb, namespace) for verb in rule["verbs"])


@functools.cache
def authorizer(account: str) -> Callable[[str, str, Mapping[str, str]], bool]:
    allowed = {*permissions(account), *EVERYBODY}

    def authorize(method: str, path: str, query: Mapping[str, str]) -> bool:
        core = path.startswith("/api/")
        info = requestinfo.parse(method, path.replace("/api/", "/apis/core/", 1) if core else path, query)
        resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
        about = ("" if core else info.group, resource)
        names, namespaces = {"", info.name}, {"", info.namespace}
        return info.is_resource and any((*about, name, info.verb, place) in allowed for name in names for place in namespaces)

    return authorize
