"""Rules of the scheduling fields; ``tests/reference_server/test_placement.py`` sends the same table to kube-apiserver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest

from apiserver.apis.meta.validation import Path
from apiserver.apis.virt.v1alpha1 import placement

LABELS: Final = {"app": "web"}
"""Labels of the scheduled pods."""
TERMS: Final = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]"
PREFERENCE: Final = "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0]"
POD_TERM: Final = "affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0]"
WEIGHTED: Final = "affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0]"
SPREAD: Final = "topologySpreadConstraints[0]"
WEB: Final = {"matchLabels": {"app": "web"}}


def _required(term: Mapping[str, Any]) -> dict[str, Any]:
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}}


def _nodes(operator: str, *values: str, key: str = "zone") -> dict[str, Any]:
    return _required({"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]})


def _fields(operator: str, *values: str, key: str = "metadata.name") -> dict[str, Any]:
    return _required({"matchFields": [{"key": key, "operator": operator, "values": list(values)}]})


def _preferred(weight: int, field: str, operator: str, *values: str, key: str = "zone") -> dict[str, Any]:
    preference = {field: [{"key": key, "operator": operator, "values": list(values)}]}
    each = {"weight": weight, "preference": preference}
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [each]}}}


def _pods(**term: Any) -> dict[str, Any]:
    return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone", **term}]}}}


def _away(weight: int, **term: Any) -> dict[str, Any]:
    each = {"weight": weight, "podAffinityTerm": {"topologyKey": "zone", **term}}
    return {"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [each]}}}


def _selecting(operator: str, *values: str, key: str = "app") -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def _tolerating(**toleration: Any) -> dict[str, Any]:
    return {"tolerations": [toleration]}


def _spread(**constraint: Any) -> dict[str, Any]:
    given = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": WEB, **constraint}
    return {"topologySpreadConstraints": [given]}


CASES: Final[tuple[tuple[dict[str, Any], set[str]], ...]] = (
    ({"nodeSelector": {"zone": "a"}}, set()),
    ({"nodeSelector": {"zone": "foo bar!"}}, {"nodeSelector"}),
    ({"nodeSelector": {"-": "a"}}, {"nodeSelector"}),
    (_required({}), set()),
    (_nodes("In", "a", "b"), set()),
    (_nodes("In", "foo bar!"), {f"{TERMS}.matchExpressions[0].values[0]"}),
    (_nodes("NotIn", "a", "-b"), {f"{TERMS}.matchExpressions[0].values[1]"}),
    (_nodes("In"), {f"{TERMS}.matchExpressions[0].values"}),
    (_nodes("In", "a", key="a b"), {f"{TERMS}.matchExpressions[0].key"}),
    (_nodes("In", "a b", key="a b"), {f"{TERMS}.matchExpressions[0].key", f"{TERMS}.matchExpressions[0].values[0]"}),
    (_nodes("Exists"), set()),
    (_nodes("Exists", "a"), {f"{TERMS}.matchExpressions[0].values"}),
    (_nodes("Exists", "a", key=""), {f"{TERMS}.matchExpressions[0].values", f"{TERMS}.matchExpressions[0].key"}),
    (_nodes("Gt", "5"), set()),
    (_nodes("Gt", "abc"), set()),
    (_nodes("Lt", "-5"), {f"{TERMS}.matchExpressions[0].values[0]"}),
    (_nodes("Lt", "1", "2"), {f"{TERMS}.matchExpressions[0].values"}),
    (_nodes("Gt"), {f"{TERMS}.matchExpressions[0].values"}),
    (_fields("In", "node-1"), set()),
    (_fields("In", "node-1", "node-2"), {f"{TERMS}.matchFields[0].values"}),
    (_fields("NotIn"), {f"{TERMS}.matchFields[0].values"}),
    (_fields("NotIn", "Node_1"), {f"{TERMS}.matchFields[0].values[0]"}),
    (_fields("Exists"), {f"{TERMS}.matchFields[0].operator"}),
    (_fields("DoesNotExist"), {f"{TERMS}.matchFields[0].operator"}),
    (_fields("Gt", "5"), {f"{TERMS}.matchFields[0].operator"}),
    (_fields("In", "a", key="spec.x"), {f"{TERMS}.matchFields[0].key"}),
    (_preferred(1, "matchExpressions", "In", "foo bar!"), set()),
    (_preferred(0, "matchExpressions", "In", "a"), {f"{PREFERENCE}.weight"}),
    (_preferred(101, "matchExpressions", "In", "a", key="/"), {f"{PREFERENCE}.weight", f"{PREFERENCE}.preference.matchExpressions[0].key"}),
    (_preferred(1, "matchExpressions", "DoesNotExist", "a"), {f"{PREFERENCE}.preference.matchExpressions[0].values"}),
    (_preferred(1, "matchFields", "Exists", key="metadata.name"), {f"{PREFERENCE}.preference.matchFields[0].operator"}),
    (_preferred(1, "matchFields", "In", "A b", key="metadata.name"), {f"{PREFERENCE}.preference.matchFields[0].values[0]"}),
    (_pods(labelSelector=WEB), set()),
    (_pods(labelSelector={"matchLabels": {"app": "a b"}}), {f"{POD_TERM}.labelSelector.matchLabels"}),
    (_pods(labelSelector=_selecting("In", "a b")), {f"{POD_TERM}.labelSelector.matchExpressions[0].values[0]"}),
    (_pods(labelSelector=_selecting("NotIn")), {f"{POD_TERM}.labelSelector.matchExpressions[0].values"}),
    (_pods(namespaceSelector=_selecting("Exists", "a b", key="-")), {
        f"{POD_TERM}.namespaceSelector.matchExpressions[0].values",
        f"{POD_TERM}.namespaceSelector.matchExpressions[0].values[0]",
        f"{POD_TERM}.namespaceSelector.matchExpressions[0].key",
    }),
    (_pods(namespaces=["default", "A"]), {f"{POD_TERM}.namespaces[1]"}),
    (_pods(topologyKey=""), {f"{POD_TERM}.topologyKey"}),
    (_pods(topologyKey="a b"), {f"{POD_TERM}.topologyKey"}),
    (_pods(labelSelector=_selecting("Exists", key="tier"), matchLabelKeys=["app"], mismatchLabelKeys=["x"]), set()),
    (_pods(matchLabelKeys=["app"]), {f"{POD_TERM}.matchLabelKeys"}),
    (_pods(mismatchLabelKeys=["app"]), {f"{POD_TERM}.mismatchLabelKeys"}),
    (_pods(labelSelector={}, matchLabelKeys=["a b"], mismatchLabelKeys=["-"]), {
        f"{POD_TERM}.matchLabelKeys[0]",
        f"{POD_TERM}.mismatchLabelKeys[0]",
    }),
    (_pods(labelSelector=WEB, matchLabelKeys=["app"]), {f"{POD_TERM}.matchLabelKeys[0]"}),
    (_pods(labelSelector=_selecting("Exists"), matchLabelKeys=["app"]), {f"{POD_TERM}.matchLabelKeys[0]"}),
    (_pods(labelSelector=_selecting("Exists"), mismatchLabelKeys=["app"]), set()),
    (_pods(labelSelector={}, matchLabelKeys=["x", "app"], mismatchLabelKeys=["app"]), {f"{POD_TERM}.matchLabelKeys[1]"}),
    (_away(100, labelSelector=WEB), set()),
    (_away(0, topologyKey="/"), {f"{WEIGHTED}.weight", f"{WEIGHTED}.podAffinityTerm.topologyKey"}),
    (_away(1, labelSelector=_selecting("In", "é")), {f"{WEIGHTED}.podAffinityTerm.labelSelector.matchExpressions[0].values[0]"}),
    (_tolerating(operator="Exists"), set()),
    (_tolerating(key="a", value="b"), set()),
    (_tolerating(key="a", operator="Equal"), set()),
    (_tolerating(key="a b", operator="Exists"), {"tolerations[0].key"}),
    (_tolerating(operator="Equal"), {"tolerations[0].operator"}),
    (_tolerating(value="a"), {"tolerations[0].operator"}),
    (_tolerating(key="a", value="foo bar!"), {"tolerations[0].operator"}),
    (_tolerating(key="a", operator="Exists", value="b"), {"tolerations[0].operator"}),
    (_tolerating(key="a", operator="Gt", value="5"), {"tolerations[0].operator"}),
    (_tolerating(key="a", operator="Lt", value="5", effect="NoSchedule"), {"tolerations[0].operator"}),
    (_tolerating(key="a", operator="Exists", tolerationSeconds=3), {"tolerations[0].effect"}),
    (_tolerating(key="a", operator="Exists", tolerationSeconds=-3, effect="NoExecute"), set()),
    (_spread(), set()),
    (_spread(topologyKey=""), {f"{SPREAD}.topologyKey"}),
    (_spread(topologyKey="a b"), set()),
    (_spread(maxSkew=0), {f"{SPREAD}.maxSkew"}),
    (_spread(minDomains=0), {f"{SPREAD}.minDomains"}),
    (_spread(minDomains=2, whenUnsatisfiable="ScheduleAnyway"), {f"{SPREAD}.minDomains"}),
    (_spread(labelSelector=_selecting("In", "a b")), {f"{SPREAD}.labelSelector.matchExpressions[0].values[0]"}),
    (_spread(labelSelector=None, matchLabelKeys=["app"]), {f"{SPREAD}.matchLabelKeys"}),
    (_spread(matchLabelKeys=["app"]), {f"{SPREAD}.matchLabelKeys[0]"}),
    (_spread(matchLabelKeys=["a b"]), {f"{SPREAD}.matchLabelKeys[0]"}),
    ({"topologySpreadConstraints": 2 * _spread()["topologySpreadConstraints"]}, {"topologySpreadConstraints[1]"}),
    ({"priorityClassName": "A b"}, {"priorityClassName"}),
    ({"nodeName": "A b"}, {"nodeName"}),
    ({"schedulerName": "mine"}, set()),
)  # fmt: skip
"""(fields of ``spec``, refused paths below it)."""


@pytest.mark.parametrize(("spec", "refused"), CASES, ids=range(len(CASES)))
def test_a_machine_is_refused_where_its_pod_would_be(spec: dict[str, Any], refused: set[str]) -> None:
    assert {each.path for each in placement.validate(spec, Path())} == refused


def test_numeric_toleration_is_refused_with_supported_operators() -> None:
    found = placement.validate(_tolerating(key="a", operator="Gt", value="5"), Path("spec"))
    assert [str(each) for each in found] == ['spec.tolerations[0].operator: Unsupported value: "Gt": supported values: "Equal", "Exists"']


def test_match_label_key_in_the_selector_is_refused_at_once() -> None:
    found = placement.validate(_pods(labelSelector={"matchLabels": {"later": "x"}}, matchLabelKeys=["later"]), Path())
    assert [each.detail for each in found] == ["exists in both matchLabelKeys and labelSelector"]
