"""Validation of the scheduling fields, as in kube-apiserver 1.36 for a Pod.

Required fields may be missing if the schema found errors. Source: ``k8s.io/kubernetes/pkg/apis/core/validation``;
``tests/reference_server/test_placement.py`` compares.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from apiserver.apis.meta import names, objectmeta
from apiserver.apis.meta.validation import FieldError, Path, duplicate, forbidden, invalid, not_supported, required
from apiserver.apis.virt.places import names as virt_names

Object = Mapping[str, Any]

_OPERATORS: Final = ("Equal", "Exists")
"""Gt and Lt need the feature gate TaintTolerationComparisonOperators, off in 1.36."""


def validate(spec: Object, path: Path) -> list[FieldError]:
    """Return errors in ``nodeSelector``, affinity, tolerations, ``topologySpreadConstraints`` and names of scheduling, below ``path``."""
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
    """Return errors in ``nodeSelector``, below ``path``."""
    selector, place = spec.get("nodeSelector") or {}, path.child("nodeSelector")
    hosts = [selector[each] for each in (virt_names.HOSTNAME_SELECTOR, virt_names.HOSTNAME_LABEL) if each in selector]
    text = f"{virt_names.HOSTNAME_SELECTOR} stands for {virt_names.HOSTNAME_LABEL}: no node has two values of it"
    wrong = [invalid(place, hosts[1], text)] if len(hosts) > 1 and hosts[0] != hosts[1] else []
    return objectmeta.validate_labels(selector, place) + wrong


def _with(elements: Sequence[Object] | None, *needed: str) -> Iterator[tuple[int, Object]]:
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
                found += _node_term(term, place.index(position), with_values=True)
        for position, each in _with(node.get(preferred_field), "weight", "preference"):
            place = below.child(preferred_field).index(position)
            found += _weight(each, place) + _node_term(each["preference"], place.child("preference"), with_values=False)
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


def _node_term(term: Object, path: Path, *, with_values: bool) -> list[FieldError]:
    """Return errors in a node affinity's term; ``with_values``: also label values, as Kubernetes does only for required terms."""
    found = []
    for position, each in _with(term.get("matchExpressions"), "key", "operator"):
        place = path.child("matchExpressions").index(position)
        found += _requirement(each, place) + (_label_values(each, place) if with_values else [])
    for position, each in _with(term.get("matchFields"), "key", "operator"):
        found += _node_field(each, path.child("matchFields").index(position))
    return found


def _node_field(requirement: Object, path: Path) -> list[FieldError]:
    key, operator, values = requirement["key"], requirement["operator"], requirement.get("values") or []
    place, found = path.child("values"), []
    if operator not in ("In", "NotIn"):
        found.append(invalid(path.child("operator"), operator, "not a valid selector operator"))
    elif len(values) != 1:
        found.append(required(place, "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"))
    if key != "metadata.name":
        return [*found, invalid(path.child("key"), key, "not a valid field selector key")]
    return found + [invalid(place.index(at), each, text) for at, each in enumerate(values) for text in names.subdomain_errors(each)]


def _pod_term(term: Object, path: Path) -> list[FieldError]:
    key, place = term["topologyKey"], path.child("topologyKey")
    found = [invalid(place, key, each) for each in names.qualified_name_errors(key)] if key else [required(place, "can not be empty")]
    found += validate_label_selector(term.get("labelSelector"), path.child("labelSelector"))
    found += validate_label_selector(term.get("namespaceSelector"), path.child("namespaceSelector"))
    for position, name in enumerate(term.get("namespaces") or []):
        found += [invalid(path.child("namespaces").index(position), name, each) for each in names.label_errors(name)]
    return found + _label_keys(term, path)


def validate_label_selector(selector: Object | None, path: Path) -> list[FieldError]:
    """Return errors in a LabelSelector; none for None."""
    if not selector:
        return []
    found = objectmeta.validate_labels(selector.get("matchLabels") or {}, path.child("matchLabels"))
    for position, each in _with(selector.get("matchExpressions"), "key", "operator"):
        place = path.child("matchExpressions").index(position)
        found += _requirement(each, place) + _label_values(each, place)
    return found


def _label_keys(holder: Object, path: Path) -> list[FieldError]:
    """Return errors in ``matchLabelKeys`` and ``mismatchLabelKeys``, which need a ``labelSelector``.

    kube-apiserver adds the pod's values of matchLabelKeys to the selector, so these keys may be neither there nor in mismatchLabelKeys.
    """
    selector, found = holder.get("labelSelector"), []
    matched, mismatched = (holder.get(each) or [] for each in ("matchLabelKeys", "mismatchLabelKeys"))
    for field, keys in (("matchLabelKeys", matched), ("mismatchLabelKeys", mismatched)):
        place = path.child(field)
        if keys and selector is None:
            found.append(forbidden(place, "must not be specified when labelSelector is not set"))
        elif keys:
            found += [invalid(place.index(at), key, text) for at, key in enumerate(keys) for text in names.qualified_name_errors(key)]
    selected, place = _selected_keys(selector or {}), path.child("matchLabelKeys")
    for at, key in enumerate(matched):
        if key in selected:
            found.append(invalid(place.index(at), key, "exists in both matchLabelKeys and labelSelector"))
        if key in mismatched:
            found.append(invalid(place.index(at), key, "exists in both matchLabelKeys and mismatchLabelKeys"))
    return found


def _selected_keys(selector: Object) -> set[str]:
    return {*(selector.get("matchLabels") or {}), *(each["key"] for _, each in _with(selector.get("matchExpressions"), "key"))}


def _label_values(requirement: Object, path: Path) -> list[FieldError]:
    place = path.child("values")
    values = enumerate(requirement.get("values") or [])
    return [invalid(place.index(at), each, text) for at, each in values for text in names.label_value_errors(each)]


def _requirement(requirement: Object, path: Path) -> list[FieldError]:
    operator, values, key = requirement["operator"], requirement.get("values") or [], requirement["key"]
    place, found = path.child("values"), [invalid(path.child("key"), key, text) for text in names.qualified_name_errors(key)]
    if operator in ("In", "NotIn") and not values:
        return [*found, required(place, "must be specified when `operator` is 'In' or 'NotIn'")]
    if operator in ("Exists", "DoesNotExist") and values:
        return [*found, forbidden(place, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")]
    if operator in ("Gt", "Lt") and len(values) != 1:
        return [*found, required(place, "must be specified single value when `operator` is 'Lt' or 'Gt'")]
    return found


def _toleration(toleration: Object, path: Path) -> list[FieldError]:
    found = []
    key, operator, value = toleration.get("key"), toleration.get("operator") or "Equal", toleration.get("value") or ""
    if key:
        found += [invalid(path.child("key"), key, each) for each in names.qualified_name_errors(key)]
    elif operator != "Exists":
        text = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        found.append(invalid(path.child("operator"), toleration.get("operator") or "", text))
    if operator not in _OPERATORS:
        found.append(not_supported(path.child("operator"), operator, _OPERATORS))
    elif operator == "Equal":
        found += [invalid(path.child("operator"), value, each) for each in names.label_value_errors(value)]
    elif value:
        found.append(invalid(path.child("operator"), value, "value must be empty when `operator` is 'Exists'"))
    if toleration.get("tolerationSeconds") is not None and toleration.get("effect") != "NoExecute":
        text = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        found.append(invalid(path.child("effect"), toleration.get("effect") or "", text))
    return found


def _spread(constraint: Object, path: Path) -> list[FieldError]:
    found = [] if constraint["topologyKey"] else [required(path.child("topologyKey"), "can not be empty")]
    if constraint["maxSkew"] < 1:
        found.append(invalid(path.child("maxSkew"), constraint["maxSkew"], "must be greater than zero"))
    minimum, otherwise = constraint.get("minDomains"), constraint["whenUnsatisfiable"]
    if minimum is not None and minimum < 1:
        found.append(invalid(path.child("minDomains"), minimum, "must be greater than zero"))
    if minimum is not None and otherwise != "DoNotSchedule":
        text = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {otherwise}"
        found.append(invalid(path.child("minDomains"), minimum, text))
    return found + validate_label_selector(constraint.get("labelSelector"), path.child("labelSelector")) + _label_keys(constraint, path)


def _weight(term: Object, path: Path) -> list[FieldError]:
    return [] if 1 <= term["weight"] <= 100 else [invalid(path.child("weight"), term["weight"], "must be in the range 1-100")]
