from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Final

import pytest

from apiserver.apis.core.resources import LEASES
from apiserver.apis.meta.errors import StatusError
from apiserver.apis.meta.users import User
from apiserver.apis.virt import guards
from apiserver.apis.virt.guards import Promise
from apiserver.apis.virt.places import deadlines, names
from controller.manager import options as controller_options
from handler.guardian import options
from tests.fakes.admission import asking
from tests.unit.apiserver.admission.policy.test_policies import World
from tests.unit.charts import policies
from tests.unit.charts.test_kubevirt import CHART, NODE, helm, objects, one

SETTINGS: Final = (NODE, "guardian.enabled=true", "guardian.voters={node1,node2,node3}")
POLICIES: Final = frozenset({"virt-guardian.kubevirt.io", "virt-controller-guardians.kubevirt.io"})
GUARDIAN: Final = "system:serviceaccount:kubevirt:virt-guardian"
CONTROLLER: Final = "system:serviceaccount:kubevirt:virt-controller"
NAMESPACE: Final = names.node_lease_namespace("kubevirt")
NOW: Final = "2026-01-01T00:00:00.000000Z"
Lease = dict[str, Any]


@pytest.fixture(scope="module")
def world() -> World:
    return policies.world(objects(*SETTINGS), *POLICIES)


def a_lease(node: str = "node1") -> Lease:
    return guards.lease(node, NAMESPACE, Promise("s", "b", (), ("node1", "node2", "node3")), NOW, None)


async def refusal(
    world: World,
    new: Lease | None,
    old: Lease | None,
    user: str,
    *,
    namespace: str = NAMESPACE,
    claims: tuple[str, ...] | None = ("node1",),
) -> str:
    operation: Any = "CREATE" if old is None else "UPDATE" if new is not None else "DELETE"
    who = User(user, ("system:serviceaccounts",), "", {} if claims is None else {names.NODE_CLAIM: claims})
    name = (new or old or {})["metadata"]["name"]
    attributes = asking(operation, LEASES, "", namespace, name, who, new, old, warn=world.warnings.append)
    try:
        await world.plugin.validate(attributes)
    except StatusError as error:
        return f"{error.code}: {error}"
    return ""


async def test_a_guardian_writes_only_its_nodes_lease(world: World) -> None:
    own, other, sealed = a_lease(), a_lease("node2"), guards.sealed(a_lease(), NOW)
    assert not await refusal(world, own, None, GUARDIAN)
    assert not await refusal(world, own, own, GUARDIAN)
    assert not await refusal(world, own, sealed, GUARDIAN), "it may begin again"
    for new, old in ((other, None), (other, other), (None, own), ({**own, "metadata": {"name": "virt-handler-node1"}}, None)):
        assert "may write only Lease" in await refusal(world, new, old, GUARDIAN)
    assert "may write only Lease" in await refusal(world, own, None, GUARDIAN, namespace="kubevirt")
    assert "only virt-controller seals" in await refusal(world, sealed, own, GUARDIAN)
    for claims in (None, (), ("node1", "node2")):
        assert "names no node" in await refusal(world, own, own, GUARDIAN, claims=claims)


def _changed(**metadata: Any) -> Callable[[Lease], None]:
    return lambda lease: lease["metadata"].update(metadata)


CHANGES: Final[dict[str, Callable[[Lease], None]]] = {
    "spec": lambda lease: lease["spec"].update(holderIdentity="node2"),
    "promise": lambda lease: lease["metadata"]["annotations"].update({guards.PROMISE_ANNOTATION: "{}"}),
    "no promise": lambda lease: lease["metadata"]["annotations"].pop(guards.PROMISE_ANNOTATION),
    "another annotation": lambda lease: lease["metadata"]["annotations"].update(a="b"),
    "labels": _changed(labels={}),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_virt_controller_seals_a_lease_once_and_only_that(world: World, change: Callable[[Lease], None]) -> None:
    lease, beats = a_lease(), {"metadata": {"name": guards.BEATS_LEASE}}
    sealed = guards.sealed(lease, NOW)
    assert not await refusal(world, sealed, lease, CONTROLLER)
    changed = copy.deepcopy(sealed)
    change(changed)
    refused = ((changed, lease), (guards.sealed(lease, "later"), sealed), (lease, sealed), (None, lease), (lease, None))
    for new, old in refused:
        assert "may only seal" in await refusal(world, new, old, CONTROLLER)
    handlers = {**lease, "metadata": {**lease["metadata"], "name": "virt-handler-node1"}}
    assert "may only seal" in await refusal(world, guards.sealed(handlers, NOW), handlers, CONTROLLER)
    assert not await refusal(world, beats, None, CONTROLLER)
    assert not await refusal(world, beats, beats, CONTROLLER)
    assert "may only seal" in await refusal(world, None, beats, CONTROLLER)
    assert not await refusal(world, changed, lease, CONTROLLER, namespace="kubevirt"), "its own election is elsewhere"


def test_guardians_are_off_by_default_and_need_three_voters() -> None:
    assert not [each for each in objects(NODE) if each["kind"] == "DaemonSet" and each["metadata"]["name"] == "virt-guardian"]
    there = {each["kind"] for each in objects(NODE) if each["metadata"]["name"].startswith("virt-guardian")}
    assert there == {"ServiceAccount", "Role", "RoleBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    for voters in ("{}", "{node1,node2}", "{node1,node1,node2}", "{a,b,c,d,e,f,g,h,i,j}"):
        done = helm(
            "template", "kubevirt", str(CHART), "--set", NODE, "--set", "guardian.enabled=true", "--set", f"guardian.voters={voters}"
        )
        assert "guardian" in done.stderr
        assert done.returncode == 1


def test_a_guardian_has_the_right_to_end_processes_and_no_other() -> None:
    pod = one("DaemonSet", "virt-guardian", *SETTINGS)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["serviceAccountName"] == "virt-guardian"
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["KILL"]}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert [each["hostPath"]["path"] for each in pod["volumes"] if "hostPath" in each] == [deadlines.DIRECTORY]
    environment = {"NODE_NAME": "node1", "POD_IP": "192.0.2.1"}
    given = options.parse(container["args"], environment)
    assert (given.voters, given.namespace, given.has_guests) == (("node1", "node2", "node3"), NAMESPACE, True)
    assert not given.virtual_nodes
    accepting = one("DaemonSet", "virt-guardian", *SETTINGS, "guardian.virtualNodes=true")["spec"]["template"]["spec"]["containers"][0]
    assert options.parse(accepting["args"], environment).virtual_nodes


def test_virt_controller_and_virt_handler_are_told_of_guardians() -> None:
    def arguments(*settings: str) -> list[str]:
        (container,) = one("Deployment", "virt-controller", *settings)["spec"]["template"]["spec"]["containers"]
        found: list[str] = container["args"]
        return found

    assert controller_options.parse(arguments(*SETTINGS)).seals
    assert not controller_options.parse(arguments(NODE)).seals
    assert not controller_options.parse(arguments(*SETTINGS)).virtual_nodes
    assert controller_options.parse(arguments(*SETTINGS, "guardian.virtualNodes=true")).virtual_nodes
    (handler,) = one("DaemonSet", "virt-handler", *SETTINGS)["spec"]["template"]["spec"]["containers"]
    assert {"name": "deadlines", "mountPath": deadlines.DIRECTORY} in handler["volumeMounts"]
