from __future__ import annotations

from typing import Any

import pytest

from apiserver.apis.core.resources import LEASES
from apiserver.apis.meta.errors import StatusError
from apiserver.apis.meta.users import User
from apiserver.apis.virt.places import names
from handler import heartbeat
from handler.devices.acceleration import Verdict
from tests.fakes import chart
from tests.fakes.admission import asking
from tests.unit.apiserver.admission.policy.test_policies import World
from tests.unit.charts import policies

HANDLER = "system:serviceaccount:kubevirt:virt-handler"
CLAIM = "authentication.kubernetes.io/node-name"
NAMESPACE = names.node_lease_namespace("kubevirt")


@pytest.fixture
def world() -> World:
    return policies.world(chart.objects(), f"{NAMESPACE}.kubevirt.io")


def a_lease(node: str = "node1", **spec: Any) -> dict[str, Any]:
    lease = heartbeat.lease(node, NAMESPACE, Verdict(accelerated=False, reason="test"), "2026-11-22T00:00:00.000000Z")
    lease["spec"] |= spec
    return lease


async def refusal(
    world: World,
    obj: dict[str, Any],
    *,
    operation: Any = "CREATE",
    claims: tuple[str, ...] | None = ("node1",),
    user: str = HANDLER,
    namespace: str = NAMESPACE,
) -> str:
    """Return why a virt-handler's request is refused; else empty. ``claims``: nodes that its token names; None: none."""
    who = User(user, ("system:serviceaccounts",), "", {} if claims is None else {CLAIM: claims})
    gone = operation == "DELETE"
    name = obj["metadata"]["name"]
    attributes = asking(
        operation,
        LEASES,
        "",
        namespace,
        name,
        who,
        None if gone else obj,
        None if operation == "CREATE" else obj,
        warn=world.warnings.append,
    )
    assert world.plugin.handles(operation, LEASES, "")
    try:
        await world.plugin.validate(attributes)
    except StatusError as error:
        return f"{error.code}: {error}"
    return ""


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE", "DELETE"])
async def test_virt_handler_writes_only_its_nodes_lease(world: World, operation: str) -> None:
    assert not await refusal(world, a_lease(), operation=operation)
    why = await refusal(world, a_lease("node2"), operation=operation)
    assert why.startswith("403: ")
    assert f'virt-handler of node "node1" may write only Lease {NAMESPACE}/virt-handler-node1' in why
    election = {**a_lease(), "metadata": {"name": "virt-controller"}}
    assert await refusal(world, election, operation=operation)
    for namespace in ("kubevirt", "kube-node-lease", "default"):
        assert await refusal(world, a_lease(), operation=operation, namespace=namespace)


async def test_the_node_may_own_the_lease(world: World) -> None:
    lease = heartbeat.lease("node1", NAMESPACE, Verdict(accelerated=False, reason="test"), "2026-11-22T00:00:00.000000Z", "uid-1")
    assert lease["metadata"]["ownerReferences"]
    for operation in ("CREATE", "UPDATE"):
        assert not await refusal(world, lease, operation=operation)


@pytest.mark.parametrize("claims", [None, (), ("",), ("node1", "node2")])
async def test_a_token_that_names_no_node_writes_no_lease(world: World, claims: tuple[str, ...] | None) -> None:
    assert "names no node" in await refusal(world, a_lease(), claims=claims)
    assert "names no node" in await refusal(world, a_lease(""), claims=claims)


@pytest.mark.parametrize("holder", ["node2", "", None])
async def test_the_holder_is_the_node(world: World, holder: str | None) -> None:
    lease = a_lease(holderIdentity=holder)
    if holder is None:
        del lease["spec"]["holderIdentity"]
    for operation in ("CREATE", "UPDATE"):
        assert 'spec.holderIdentity must be "node1"' in await refusal(world, lease, operation=operation)


async def test_leases_of_everybody_else_are_left_alone(world: World) -> None:
    for user in ("system:serviceaccount:kubevirt:virt-controller", "system:serviceaccount:other:virt-handler", "system:node:node1"):
        assert not await refusal(world, a_lease("node2"), user=user, claims=None, namespace="kubevirt")


def test_policy_fails_closed() -> None:
    policy = next(iter(each for each in chart.objects() if each["kind"] == "ValidatingAdmissionPolicy"))
    assert policy["spec"]["failurePolicy"] == "Fail"
