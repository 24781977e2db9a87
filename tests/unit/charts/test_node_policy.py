from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from apiserver.apis.core.resources import NODES
from apiserver.apis.meta.errors import StatusError
from apiserver.apis.meta.users import User
from apiserver.apis.virt.places import names
from handler import options
from tests.fakes import chart
from tests.fakes.admission import asking
from tests.unit.apiserver.admission.policy.test_policies import World
from tests.unit.charts import policies

POLICY = "virt-handler-nodes.kubevirt.io"
DEFAULT = options.parse(["--node-name=n", "--pod-ip=::1"], {}).capabilities
HANDLER = "system:serviceaccount:kubevirt:virt-handler"
Node = dict[str, Any]
NODE: Node = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {
        "name": "node1",
        "labels": {"kubernetes.io/hostname": "node1", "cpu-model.node.kubevirt.io/EPYC": "true"},
        "annotations": {"a": "b"},
        "finalizers": ["f"],
    },
    "spec": {"podCIDR": "10.0.0.0/24", "taints": [{"key": "k", "effect": "NoSchedule"}]},
}


@pytest.fixture
def world() -> World:
    return policies.world(chart.objects(), POLICY)


async def refusal(
    world: World, obj: Node | None, *, node: str | None = "node1", user: str = HANDLER, subresource: str = "", old: Node = NODE
) -> str:
    who = User(user, ("system:serviceaccounts",), "", {} if node is None else {names.NODE_CLAIM: (node,)})
    operation: Any = "UPDATE" if obj else "DELETE"
    attributes = asking(operation, NODES, subresource, "", old["metadata"]["name"], who, obj, old, warn=world.warnings.append)
    assert world.plugin.handles(operation, NODES, subresource)
    try:
        await world.plugin.validate(attributes)
    except StatusError as error:
        return f"{error.code}: {error}"
    return ""


def changed(change: Callable[[Node], Any]) -> Node:
    node = copy.deepcopy(NODE)
    change(node)
    return node


ALLOWED: dict[str, Callable[[Node], Any]] = {
    "nothing": lambda _: None,
    "a stale label": lambda node: node["metadata"]["labels"].pop("cpu-model.node.kubevirt.io/EPYC"),
    **{prefix: lambda node, prefix=prefix: node["metadata"]["labels"].update({f"{prefix}x": "true"}) for prefix in names.CPU_LABELS},  # type: ignore[misc]  # a default binds it
}
REFUSED: dict[str, Callable[[Node], Any]] = {
    "a label of others": lambda node: node["metadata"]["labels"].update(disk="ssd"),
    "a role": lambda node: node["metadata"]["labels"].update({"node-role.kubernetes.io/control-plane": "true"}),
    "the name of a prefix": lambda node: node["metadata"]["labels"].update({"cpu-model.node.kubevirt.io": "true"}),
    "another value": lambda node: node["metadata"]["labels"].update({"cpu-model.node.kubevirt.io/x": "secret"}),
    "another value of a known one": lambda node: node["metadata"]["labels"].update({"cpu-model.node.kubevirt.io/EPYC": "false"}),
    "a changed label": lambda node: node["metadata"]["labels"].update({"kubernetes.io/hostname": "node2"}),
    "a label gone": lambda node: node["metadata"]["labels"].pop("kubernetes.io/hostname"),
    "all labels gone": lambda node: node["metadata"].pop("labels"),
    "an annotation": lambda node: node["metadata"]["annotations"].update(c="d"),
    "a finalizer gone": lambda node: node["metadata"].pop("finalizers"),
    "an owner": lambda node: node["metadata"].update(ownerReferences=[{"name": "x"}]),
    "a taint gone": lambda node: node["spec"].pop("taints"),
    "unschedulable": lambda node: node["spec"].update(unschedulable=True),
}


@pytest.mark.parametrize("what", ALLOWED)
async def test_labels_of_processors_come_and_go(world: World, what: str) -> None:
    assert not await refusal(world, changed(ALLOWED[what]))


@pytest.mark.parametrize("what", REFUSED)
async def test_nothing_else_changes(world: World, what: str) -> None:
    why = await refusal(world, changed(REFUSED[what]))
    assert why.startswith("403: ")
    assert "resulted in error" not in why


async def test_a_node_labels_itself_and_no_other(world: World) -> None:
    node = changed(ALLOWED[names.CPU_MODEL_LABELS])
    assert 'virt-handler of node "node2" may update only that Node' in await refusal(world, node, node="node2")
    assert "names no node" in await refusal(world, node, node=None)
    assert "names no node" in await refusal(world, node, node="")


async def test_nodes_are_not_deleted_and_have_no_status_of_ours(world: World) -> None:
    assert "may only update Nodes" in await refusal(world, None)
    assert "may only update Nodes" in await refusal(world, NODE, subresource="status")


async def test_everybody_else_is_left_alone(world: World) -> None:
    for user in ("system:serviceaccount:kubevirt:virt-controller", "system:serviceaccount:other:virt-handler", "system:node:node1"):
        assert not await refusal(world, changed(REFUSED["a taint gone"]), user=user, node=None)


def test_the_prefixes_of_the_policy_are_those_of_the_labels() -> None:
    (policy,) = (each for each in chart.objects() if (each["kind"], each["metadata"]["name"]) == ("ValidatingAdmissionPolicy", POLICY))
    assert policy["spec"]["failurePolicy"] == "Fail"
    assert all(str(policy["spec"]["validations"]).count(f'"{prefix}"') == 2 for prefix in names.CPU_LABELS)


def test_libvirt_is_asked_in_virt_handlers_pod_before_it_runs() -> None:
    (handler,) = (each for each in chart.objects() if each["kind"] == "DaemonSet")
    (asking,) = handler["spec"]["template"]["spec"]["initContainers"]
    assert "/virt-launcher:" in asking["image"]
    assert asking["command"][2].startswith('python3 -m launcher.hypervisor.node_capabilities "$@" || ')
    assert asking["args"] == [f"{DEFAULT}/$(NODE_NAME)", "qemu", "kvm"]
    assert "/dev" not in {each["mountPath"] for each in asking["volumeMounts"]}  # it changes the mode of /dev/kvm
