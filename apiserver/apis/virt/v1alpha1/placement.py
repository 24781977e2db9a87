"""The rules of the scheduling fields.

Only what the pod would be refused for: a pod that cannot be created is a virtual machine that hangs, so it is said here, at once. Of an
object of wrong shape what the schema requires may be absent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from apiserver.apis.meta import names, objectmeta
from apiserver.apis.meta.validation import FieldError, Path, duplicate, forbidden, invalid, required
from apiserver.apis.virt import names as virt_names

Object = Mapping[str, Any]


def validate(spec: Object, path: Path) -> list[FieldError]:
    """Return all that is wrong with nodeSelector, affinity, tolerations, topologySpreadConstraints and the names beside them."""
    found = validate_selector(spec, path)
    for field in ("priorityClassName", "schedulerName", "nodeName"):
        name = spec.get(field)
        if name:
            found += [invalid(path.child(field), name, each) for each in names.subdomain_errors(name)]
    found += _affinity(spec.get("affinity") or {}, path.child("affinity"))
    for position, toleration in enumerate(spec.get("tolerations") or []):
        found += _toleration(toleration, path.child("tolerations").index(position))
    constraints = spec.get("topologySpreadConstraints") or []
    seen = set()
    for position, constraint in _with(constraints, "topologyKey", "whenUnsatisfiable", "maxSkew"):
        place = path.child("topologySpreadConstraints").index(position)
        found += _spread(constraint, place)
        pair = (constraint["topologyKey"], constraint["whenUnsatisfiable"])
        if pair in seen:
            found.append(duplicate(place, f"{{{pair[0]}, {pair[1]}}}"))
        seen.add(pair)
    return found


def validate_selector(spec: Object, path: Path) -> list[FieldError]:
    """Return all that is wrong with nodeSelector."""
    selector, place = spec.get("nodeSelector") or {}, path.child("nodeSelector")
    hosts = [selector[each] for each in (virt_names.HOSTNAME_SELECTOR, virt_names.HOSTNAME_LABEL) if each in selector]
    text = f"{virt_names.HOSTNAME_SELECTOR} stands for {virt_names.HOSTNAME_LABEL}: no node has two values of it"
    wrong = [invalid(place, hosts[1], text)] if len(hosts) > 1 and hosts[0] != hosts[1] else []
    return objectmeta.validate_labels(selector, place) + wrong


def _with(elements: Sequence[Object] | None, *needed: str) -> Iterator[tuple[int, Object]]:
    """Yield position and element of those that have what the schema requires; the schema has named the others."""
    return ((position, each) for position, each in enumerate(elements or ()) if all(field in each for field in needed))


def _affinity(affinity: Object, path: Path) -> list[FieldError]:
    found: list[FieldError] = []
    required_field, preferred_field = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"
    if node := affinity.get("nodeAffinity"):
        below = path.child("nodeAffinity")
        if wanted := node.get(required_field):
            place = below.child(required_field, "nodeSelectorTerms")
            if not wanted.get("nodeSelectorTerms"):
                found.append(required(place, "must have at least one node selector term"))
            for position, term in enumerate(wanted.get("nodeSelectorTerms") or []):
                found += _node_term(term, place.index(position))
        for position, each in _with(node.get(preferred_field), "weight", "preference"):
            place = below.child(preferred_field).index(position)
            found += _weight(each, place) + _node_term(each["preference"], place.child("preference"))
    for field in ("podAffinity", "podAntiAffinity"):
        pod = affinity.get(field) or {}
        for position, term in _with(pod.get(required_field), "topologyKey"):
            found += _pod_term(term, path.child(field, required_field).index(position))
        for position, each in _with(pod.get(preferred_field), "weight", "podAffinityTerm"):
            place = path.child(field, preferred_field).index(position)
            found += _weight(each, place)
            if "topologyKey" in each["podAffinityTerm"]:
                found += _pod_term(each["podAffinityTerm"], place.child("podAffinityTerm"))
    return found


def _node_term(term: Object, path: Path) -> list[FieldError]:
    found = []
    for field in ("matchExpressions", "matchFields"):
        for position, each in _with(term.get(field), "key", "operator"):
            place = path.child(field).index(position)
            found += _requirement(each, place)
            if field == "matchExpressions":
                found += [invalid(place.child("key"), each["key"], text) for text in names.qualified_name_errors(each["key"])]
            elif each["key"] != "metadata.name":
                found.append(invalid(place.child("key"), each["key"], "not a valid field selector key"))
    return found


def _pod_term(term: Object, path: Path) -> list[FieldError]:
    found = _topology_key(term["topologyKey"], path)
    found += _label_selector(term.get("labelSelector"), path.child("labelSelector"))
    found += _label_selector(term.get("namespaceSelector"), path.child("namespaceSelector"))
    for position, name in enumerate(term.get("namespaces") or []):
        found += [invalid(path.child("namespaces").index(position), name, each) for each in names.label_errors(name)]
    return found


def _label_selector(selector: Object | None, path: Path) -> list[FieldError]:
    if not selector:
        return []
    found = objectmeta.validate_labels(selector.get("matchLabels") or {}, path.child("matchLabels"))
    for position, each in _with(selector.get("matchExpressions"), "key", "operator"):
        place = path.child("matchExpressions").index(position)
        found += _requirement(each, place)
        found += [invalid(place.child("key"), each["key"], text) for text in names.qualified_name_errors(each["key"])]
    return found


def _requirement(requirement: Object, path: Path) -> list[FieldError]:
    operator, values = requirement["operator"], requirement.get("values") or []
    place = path.child("values")
    if operator in ("In", "NotIn") and not values:
        return [required(place, "must be specified when `operator` is 'In' or 'NotIn'")]
    if operator in ("Exists", "DoesNotExist") and values:
        return [forbidden(place, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")]
    if operator in ("Gt", "Lt") and len(values) != 1:
        return [required(place, "must be specified single value when `operator` is 'Lt' or 'Gt'")]
    return []


def _toleration(toleration: Object, path: Path) -> list[FieldError]:
    found = []
    key, operator, value = toleration.get("key"), toleration.get("operator") or "Equal", toleration.get("value")
    if key:
        found += [invalid(path.child("key"), key, each) for each in names.qualified_name_errors(key)]
    elif operator != "Exists":
        found.append(invalid(path.child("operator"), operator, 'operator must be Exists when `key` is empty, which means "match all"'))
    if operator == "Exists" and value:
        found.append(invalid(path.child("operator"), value, "value must be empty when `operator` is 'Exists'"))
    if "tolerationSeconds" in toleration and toleration.get("effect") != "NoExecute":
        text = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        found.append(invalid(path.child("effect"), toleration.get("effect") or "", text))
    return found


def _spread(constraint: Object, path: Path) -> list[FieldError]:
    found = _topology_key(constraint["topologyKey"], path)
    if constraint["maxSkew"] < 1:
        found.append(invalid(path.child("maxSkew"), constraint["maxSkew"], "must be greater than zero"))
    minimum = constraint.get("minDomains")
    if minimum is not None and minimum < 1:
        found.append(invalid(path.child("minDomains"), minimum, "must be greater than zero"))
    if minimum is not None and constraint["whenUnsatisfiable"] != "DoNotSchedule":
        found.append(invalid(path.child("minDomains"), minimum, "can only use minDomains if whenUnsatisfiable=DoNotSchedule"))
    return found + _label_selector(constraint.get("labelSelector"), path.child("labelSelector"))


def _topology_key(key: str, path: Path) -> list[FieldError]:
    if not key:
        return [required(path.child("topologyKey"), "can not be empty")]
    return [invalid(path.child("topologyKey"), key, each) for each in names.qualified_name_errors(key)]


def _weight(term: Object, path: Path) -> list[FieldError]:
    return [] if 1 <= term["weight"] <= 100 else [invalid(path.child("weight"), term["weight"], "must be in the range 1-100")]
