from __future__ import annotations

import copy
from typing import Any, Final

import pytest

from apiserver.admission.resource_quota import Usage, count_name
from apiserver.apis.core.resources import RESOURCE_QUOTAS
from apiserver.apis.meta.errors import StatusError
from apiserver.apis.meta.resources import Resource
from apiserver.apis.meta.users import User
from apiserver.apis.virt.places import resources
from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from tests.fakes import chart
from tests.fakes.admission import asking
from tests.unit.apiserver.admission.policy.test_policies import World
from tests.unit.charts import policies

VIRT_API: Final = "system:serviceaccount:kubevirt:virt-api"
POLICY: Final = "virt-api-quotas.kubevirt.io"
MACHINES: Final = count_name(VIRTUAL_MACHINES)
COUNTS: Final = sorted(count_name(each) for each in vars(resources).values() if isinstance(each, Resource) and each.namespaced)
HARD: Final = {MACHINES: "3", "pods": "10", "requests.cpu": "4"}
QUOTA: Final[dict[str, Any]] = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "q", "namespace": "default"},
    "spec": {"hard": HARD},
    "status": {"hard": HARD, "used": {MACHINES: "2", "pods": "1", "requests.cpu": "100m"}},
}
REFUSED: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "a limit": ({"hard": {**HARD, MACHINES: "9"}}, "may not change the limits"),
    "the limits": ({"hard": {}}, "may not change the limits"),
    "pods": ({"used": {**QUOTA["status"]["used"], "pods": "10"}}, "may change only the counts"),
    "fewer pods": ({"used": {**QUOTA["status"]["used"], "pods": "0"}}, "may change only the counts"),
    "a new count": ({"used": {**QUOTA["status"]["used"], "secrets": "1"}}, "may change only the counts"),
    "a count that goes": ({"used": {MACHINES: "2", "pods": "1"}}, "may change only the counts"),
    "fewer machines": ({"used": {**QUOTA["status"]["used"], MACHINES: "1"}}, "may not lower a count"),
}


@pytest.fixture
def world() -> World:
    return policies.world(chart.objects(), POLICY)


def changed(**status: Any) -> dict[str, Any]:
    quota = copy.deepcopy(QUOTA)
    quota["status"] |= status
    return quota


async def refusal(world: World, quota: dict[str, Any], *, operation: Any = "UPDATE", part: str = "status", user: str = VIRT_API) -> str:
    new, old = (None if operation == "DELETE" else quota), (None if operation == "CREATE" else QUOTA)
    attributes = asking(operation, RESOURCE_QUOTAS, part, "default", "q", User(user, (), "", {}), new, old, warn=world.warnings.append)
    assert world.plugin.handles(operation, RESOURCE_QUOTAS, part)
    try:
        await world.plugin.validate(attributes)
    except StatusError as error:
        return f"{error.code}: {error}"
    return ""


async def test_virt_api_counts_a_machine_as_its_plug_in_does(world: World) -> None:
    usage = Usage.of([QUOTA], MACHINES)
    usage.take()
    (charged,) = usage.charged()
    assert charged["status"]["used"][MACHINES] == "3"
    assert not await refusal(world, charged)


@pytest.mark.parametrize("counted", COUNTS)
async def test_virt_api_counts_each_of_its_namespaced_kinds(world: World, counted: str) -> None:
    assert not await refusal(world, changed(used={**QUOTA["status"]["used"], counted: "3"}))


@pytest.mark.parametrize("what", REFUSED)
async def test_virt_api_changes_nothing_else_of_a_quota(world: World, what: str) -> None:
    status, why = REFUSED[what]
    said = await refusal(world, changed(**status))
    assert said.startswith("403: ")
    assert why in said


@pytest.mark.parametrize(("operation", "part"), [("CREATE", ""), ("UPDATE", ""), ("DELETE", "")])
async def test_virt_api_writes_no_quota_itself(world: World, operation: str, part: str) -> None:
    assert "may only update the status" in await refusal(world, QUOTA, operation=operation, part=part)


async def test_everybody_else_is_left_alone(world: World) -> None:
    for user in ("system:serviceaccount:kube-system:resourcequota-controller", "admin"):
        assert not await refusal(world, changed(hard={}, used={}), user=user)
