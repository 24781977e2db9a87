from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from apiserver.apis.core.resources import NODES
from apiserver.apis.meta.errors import StatusError
from apiserver.apis.meta.users import User
from apiserver.apis.virt.places import fencing
from controller.manager import options
from controller.manager.loops import FENCING, SOURCES
from controller.reconcilers.settings import FenceAgent
from tests.fakes.admission import asking
from tests.unit.apiserver.admission.policy.test_policies import World
from tests.unit.charts import policies
from tests.unit.charts.test_kubevirt import CHART, NODE, helm, objects, one

POLICY: Final = "virt-controller-nodes.kubevirt.io"
ROLE: Final = "kubevirt.io:virt-controller-fencing"
CONTROLLER: Final = "system:serviceaccount:kubevirt:virt-controller"
SETTINGS: Final = (NODE, "fencing.agent=redfish.py", "fencing.volume.configMap.name=agents", "fencing.secret=boards")
NOW: Final = "2026-01-01T00:00:00Z"
Node = dict[str, Any]


def node(ready: str = "Unknown") -> Node:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "node1", "labels": {"a": "b"}, "annotations": {"a": "b"}, "finalizers": ["f"]},
        "spec": {"podCIDRs": ["192.0.2.0/24"], "providerID": "p", "taints": [{"key": "k", "effect": "NoSchedule"}]},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


FENCED: Final = fencing.fenced(node(), "virt-controller with redfish.py", NOW, until_restart=True)


@pytest.fixture(scope="module")
def world() -> World:
    return policies.world(objects(*SETTINGS), POLICY)


async def refusal(world: World, new: Node | None, old: Node, *, user: str = CONTROLLER, subresource: str = "") -> str:
    operation: Any = "UPDATE" if new else "DELETE"
    who = User(user, ("system:serviceaccounts",), "", {})
    attributes = asking(operation, NODES, subresource, "", "node1", who, new, old, warn=world.warnings.append)
    try:
        await world.plugin.validate(attributes)
    except StatusError as error:
        return f"{error.code}: {error}"
    return ""


def changed(change: Callable[[Node], Any], of: Node) -> Node:
    found = copy.deepcopy(of)
    change(found)
    return found


async def test_a_silent_node_is_fenced_and_any_fenced_node_is_unfenced(world: World) -> None:
    assert not await refusal(world, FENCED, node())
    running = {**FENCED, "status": node("True")["status"]}
    assert not await refusal(world, fencing.unfenced(running), running)


@pytest.mark.parametrize("ready", ["True", "False"])
async def test_a_node_that_reports_is_not_fenced(world: World, ready: str) -> None:
    assert "only a Node with an unreachable kubelet" in await refusal(world, {**FENCED, "status": node(ready)["status"]}, node(ready))


REFUSED: Final[dict[str, Callable[[Node], Any]]] = {
    "a label": lambda found: found["metadata"]["labels"].update(c="d"),
    "a label gone": lambda found: found["metadata"].pop("labels"),
    "another annotation": lambda found: found["metadata"]["annotations"].update(c="d"),
    "another annotation's value": lambda found: found["metadata"]["annotations"].update(a="d"),
    "another annotation gone": lambda found: found["metadata"]["annotations"].pop("a"),
    "another taint": lambda found: found["spec"]["taints"].append({"key": "x", "effect": "NoExecute"}),
    "another taint gone": lambda found: found["spec"].update(taints=[]),
    "another taint's effect": lambda found: found["spec"]["taints"][0].update(effect="NoExecute"),
    "cordoned": lambda found: found["spec"].update(unschedulable=True),
    "a finalizer gone": lambda found: found["metadata"].pop("finalizers"),
    "an owner": lambda found: found["metadata"].update(ownerReferences=[{"name": "x"}]),
    "a provider": lambda found: found["spec"].update(providerID="x"),
    "a network": lambda found: found["spec"].update(podCIDRs=["198.51.100.0/24"]),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_nothing_else_of_a_node_changes(world: World, what: str) -> None:
    why = await refusal(world, changed(REFUSED[what], node()), node())
    assert why.startswith("403: ")
    assert "resulted in error" not in why


async def test_nodes_are_not_deleted_and_others_are_not_concerned(world: World) -> None:
    assert "may only update Nodes" in await refusal(world, None, node())
    assert "may only update Nodes" in await refusal(world, node("True"), node(), subresource="status")
    assert not await refusal(world, changed(REFUSED["cordoned"], node()), node(), user="jane")


def test_the_rights_and_the_flags_come_with_the_agent() -> None:
    assert not [each for each in objects(NODE) if each["metadata"]["name"] in {POLICY, ROLE}]
    (rule,) = one("ClusterRole", ROLE, *SETTINGS)["rules"]
    needed = {(each.group, each.resource, verb) for each in FENCING.rights for verb in each.verbs.split() if each.scope == "cluster"}
    assert needed == {(rule["apiGroups"][0], rule["resources"][0], verb) for verb in rule["verbs"]}
    assert {"nodes", "leases", "vms", "guardians"} == set(FENCING.informers) <= set(SOURCES)
    (container,) = one("Deployment", "virt-controller", *SETTINGS)["spec"]["template"]["spec"]["containers"]
    given = options.parse(container["args"]).fence_agent
    assert given == FenceAgent(Path("/fence-agent/redfish.py"))
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"] if each.get("readOnly")}
    assert (mounts["fence-agent"], mounts["fence-agent-secret"]) == ("/fence-agent", "/fence-agent-secret")


def test_an_agent_needs_a_volume() -> None:
    refused = helm("template", "kubevirt", str(CHART), "--set", NODE, "--set", "fencing.agent=a")
    assert refused.returncode
    assert "fencing.volume: required with fencing.agent" in refused.stderr
