from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from apiserver.apis.virt.places import fencing
from controller.manager import options
from controller.manager.loops import NON_OPERATIONAL, SOURCES
from controller.reconcilers.non_operational import marking_plan
from controller.reconcilers.non_operational.marking_plan import SetCondition
from tests.unit.apiserver.admission.policy.test_policies import World
from tests.unit.charts import policies, test_fencing_policy
from tests.unit.charts.test_fencing_policy import FENCED, POLICY, REFUSED, Node, changed, node, refusal
from tests.unit.charts.test_kubevirt import CHART, NODE, helm, objects, one
from tests.unit.controller.reconcilers.non_operational.test_marking_plan import AVOIDED, NOW, TRIED

ROLE: Final = "kubevirt.io:virt-controller-non-operational-nodes"
SETTINGS: Final = (NODE, "nonOperationalNodes.taint=NoSchedule")
BOTH: Final = (*test_fencing_policy.SETTINGS, *SETTINGS[1:])


@pytest.fixture(scope="module", params=[SETTINGS, BOTH], ids=["alone", "with a fence agent"])
def world(request: pytest.FixtureRequest) -> World:
    return policies.world(objects(*request.param), POLICY)


def ready() -> Node:
    found = node("True")
    found["status"] |= {"images": [{"names": ["a"]}], "nodeInfo": {"bootID": "b"}}
    return found


def told(action: SetCondition, of: Node) -> Node:
    (ours,) = marking_plan.status_patch(of, action, NOW)["status"]["conditions"]
    others = [each for each in of["status"]["conditions"] if each["type"] != ours["type"]]
    return changed(lambda found: found["status"].update(conditions=[*others, ours]), of)


async def test_the_taint_comes_and_goes(world: World) -> None:
    tainted = marking_plan.with_taint(ready(), "NoSchedule")
    for new, old in ((tainted, ready()), (tainted, tainted), (ready(), tainted)):
        assert not await refusal(world, new, old)
    soft = marking_plan.with_taint(ready(), "PreferNoSchedule")
    assert not await refusal(world, tainted, soft), "the value changed"
    assert not await refusal(world, ready(), soft)
    assert not await refusal(
        world, changed(lambda found: found["spec"]["taints"].append({"key": "x", "effect": "NoExecute"}), soft), soft, user="jane"
    )


@pytest.mark.parametrize("taint", [{"effect": "PreferNoSchedule"}, {"effect": "NoExecute"}, {"effect": "NoSchedule", "value": "x"}])
async def test_the_taint_has_the_effect_of_the_chart(world: World, taint: dict[str, str]) -> None:
    new = changed(lambda found: found["spec"]["taints"].append({"key": "kubevirt.io/non-operational", **taint}), ready())
    assert "only with the effect NoSchedule" in await refusal(world, new, ready())


async def test_the_condition_comes_and_changes(world: World) -> None:
    avoided = told(AVOIDED, ready())
    for new, old in ((avoided, ready()), (told(TRIED, avoided), avoided)):
        assert not await refusal(world, new, old, subresource="status")


OF_STATUS: Final[dict[str, Callable[[Node], Any]]] = {
    "another condition's status": lambda found: [
        each.update(status="x") for each in found["status"]["conditions"] if each["type"] == "Ready"
    ],
    "another condition": lambda found: found["status"]["conditions"].append({"type": "X", "status": "True"}),
    "no condition": lambda found: found["status"].pop("conditions"),
    "a field": lambda found: found["status"].update(capacity={"cpu": "1"}),
    "a field's value": lambda found: found["status"]["nodeInfo"].update(bootID="c"),
    "a field gone": lambda found: found["status"].pop("images"),
    "the taint": lambda found: found["spec"]["taints"].append({"key": "kubevirt.io/non-operational", "effect": "NoSchedule"}),
    "who fenced it": lambda found: found["metadata"]["annotations"].update({"kubevirt.io/fenced-by": "x"}),
    **REFUSED,
}


@pytest.mark.parametrize("what", OF_STATUS)
async def test_only_the_condition_of_a_status_changes(world: World, what: str) -> None:
    why = await refusal(world, changed(OF_STATUS[what], ready()), ready(), subresource="status")
    assert why.startswith("403: ")
    assert "resulted in error" not in why


@pytest.mark.parametrize("what", REFUSED)
async def test_only_the_taint_of_a_node_changes(world: World, what: str) -> None:
    why = await refusal(world, changed(REFUSED[what], ready()), ready())
    assert why.startswith("403: ")
    assert "resulted in error" not in why


async def test_no_other_request_about_nodes_is_admitted(world: World) -> None:
    assert "may only update Nodes" in await refusal(world, None, ready())
    assert "may only update Nodes" in await refusal(world, ready(), ready(), subresource="proxy")


async def test_each_option_allows_only_its_own_taint() -> None:
    avoiding, agent, both = (policies.world(objects(*each), POLICY) for each in (SETTINGS, test_fencing_policy.SETTINGS, BOTH))
    tainted, annotated = marking_plan.with_taint(node(), "NoSchedule"), changed(OF_STATUS["who fenced it"], node())
    assert "only the taint kubevirt.io/non-operational of" in await refusal(avoiding, FENCED, node())
    assert "only the annotation" in await refusal(avoiding, annotated, node())
    assert "only the taint node.kubernetes.io/out-of-service of" in await refusal(agent, tainted, node())
    assert "may only update Nodes" in await refusal(agent, told(AVOIDED, ready()), ready(), subresource="status")
    for new, old in ((FENCED, node()), (tainted, node()), (fencing.unfenced(FENCED), FENCED)):
        assert not await refusal(both, new, old)
    assert "unreachable kubelet" in await refusal(both, {**FENCED, "status": ready()["status"]}, ready())


def test_the_rights_and_the_flag_come_with_the_value() -> None:
    assert not [each for each in objects(NODE) if each["metadata"]["name"] in {POLICY, ROLE}]
    assert not [each for each in objects(*test_fencing_policy.SETTINGS) if each["metadata"]["name"] == ROLE]
    rules = one("ClusterRole", ROLE, *SETTINGS)["rules"]
    granted = {(*rule["apiGroups"], *rule["resources"], verb) for rule in rules for verb in rule["verbs"]}
    assert granted == {(each.group, each.resource, verb) for each in NON_OPERATIONAL.rights for verb in each.verbs.split()}
    assert set(NON_OPERATIONAL.informers) <= set(SOURCES)
    assert one("ClusterRoleBinding", ROLE, *SETTINGS)["roleRef"]["name"] == ROLE
    for settings, taint in (
        ((NODE,), None),
        (SETTINGS, "NoSchedule"),
        ((NODE, "nonOperationalNodes.taint=PreferNoSchedule"), "PreferNoSchedule"),
    ):
        (container,) = one("Deployment", "virt-controller", *settings)["spec"]["template"]["spec"]["containers"]
        assert options.parse(container["args"]).taint == taint


def test_no_pod_is_evicted_by_the_taint() -> None:
    refused = helm("template", "kubevirt", str(CHART), "--set", NODE, "--set", "nonOperationalNodes.taint=NoExecute")
    assert refused.returncode
    assert "nonOperationalNodes" in refused.stderr
