"""Discovery documents: plain (``APIGroupList`` and below) and aggregated (v2), built once."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import Any, Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.resources import Resource
from apiserver.apis.meta.versions import preference
from apiserver.endpoints.negotiation import DISCOVERY
from apiserver.registry.generic.scaling import SCALE
from apiserver.registry.generic.strategy import Strategy, answer_of

AGGREGATED_TYPE: Final = f"application/json;g=apidiscovery.k8s.io;v=v2;as={DISCOVERY}"
_MAIN: Final = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_STATUS: Final = ["get", "patch", "update"]
_ACTION: Final = ["create", "update"]
_READ: Final = ["get"]


def subresources(strategy: Strategy) -> list[tuple[str, Resource, list[str]]]:
    """Return (name, resource of the answer's kind, verbs) of each subresource."""
    found = [(name, strategy.resource, _READ) for name in strategy.connects]
    found += [(name, part.answers, _READ) for name, part in strategy.reads.items()]
    found += [(name, answer_of(verb, strategy.resource), _ACTION) for name, verb in strategy.verbs.items()]
    if strategy.scaling is not None:
        found.append(("scale", SCALE, _STATUS))
    if strategy.has_status:
        found.append(("status", strategy.resource, _STATUS))
    return sorted(found, key=lambda each: each[0])


def api_group_list(strategies: Sequence[Strategy]) -> Object:
    """Return the ``APIGroupList`` for ``GET /apis``."""
    groups = sorted({each.resource.group for each in strategies})
    listed = [{key: value for key, value in api_group(strategies, group).items() if key not in {"kind", "apiVersion"}} for group in groups]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}


def api_group(strategies: Sequence[Strategy], group: str) -> Object:
    """Return the ``APIGroup`` for ``GET /apis/GROUP``; its first version is preferred."""
    versions = [{"groupVersion": f"{group}/{version}", "version": version} for version in _versions(strategies, group)]
    return {"kind": "APIGroup", "apiVersion": "v1", "name": group, "versions": versions, "preferredVersion": versions[0]}


def api_resource_list(strategies: Sequence[Strategy], group: str, version: str) -> Object:
    """Return the ``APIResourceList`` for ``GET /apis/GROUP/VERSION``.

    Subresources follow all resources, because fabric8 takes the first entry of a kind.
    """
    resources = [_api_resource(strategy) for strategy in _of(strategies, group, version)]
    for strategy in _of(strategies, group, version):
        for name, answer, verbs in subresources(strategy):
            full = f"{strategy.resource.plural}/{name}"
            foreign = {"group": answer.group, "version": answer.version} if answer.group != group else {}
            one = {"name": full, "singularName": "", "namespaced": strategy.resource.namespaced, "kind": answer.kind, "verbs": verbs}
            resources.append({**foreign, **one})
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{group}/{version}", "resources": resources}


def aggregated(strategies: Sequence[Strategy]) -> Object:
    """Return the ``APIGroupDiscoveryList`` for ``GET /apis``."""
    items = []
    for group in sorted({each.resource.group for each in strategies}):
        versions = [
            {"version": version, "freshness": "Current", "resources": [_discovered(each) for each in _of(strategies, group, version)]}
            for version in _versions(strategies, group)
        ]
        items.append({"metadata": {"name": group}, "versions": versions})
    return {"kind": DISCOVERY, "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def storage_version_hash(resource: Resource) -> str:
    """Return the hash of group, version and kind by which the storage-version migrator detects changes."""
    digest = hashlib.sha256(f"{resource.group}/{resource.version}/{resource.kind}".encode()).digest()
    return base64.b64encode(digest[:8]).decode()


def _versions(strategies: Sequence[Strategy], group: str) -> list[str]:
    return sorted({each.resource.version for each in strategies if each.resource.group == group}, key=preference)


def _of(strategies: Sequence[Strategy], group: str, version: str) -> list[Strategy]:
    found = [each for each in strategies if (each.resource.group, each.resource.version) == (group, version)]
    return sorted(found, key=lambda each: each.resource.plural)


def _api_resource(strategy: Strategy) -> Object:
    return {
        "name": strategy.resource.plural,
        "singularName": strategy.singular,
        "namespaced": strategy.resource.namespaced,
        "kind": strategy.resource.kind,
        "verbs": _MAIN,
        **_names(strategy),
        "storageVersionHash": storage_version_hash(strategy.hub.resource),
    }


def _discovered(strategy: Strategy) -> Object:
    resource = strategy.resource
    discovered = {
        "resource": resource.plural,
        "responseKind": _kind(resource),
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": strategy.singular,
        "verbs": _MAIN,
        **_names(strategy),
    }
    if below := [{"subresource": name, "responseKind": _kind(answer), "verbs": verbs} for name, answer, verbs in subresources(strategy)]:
        discovered["subresources"] = below
    return discovered


def _names(strategy: Strategy) -> dict[str, Any]:
    names = {"shortNames": list(strategy.short_names), "categories": list(strategy.categories)}
    return {key: value for key, value in names.items() if value}


def _kind(resource: Resource) -> Object:
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}
