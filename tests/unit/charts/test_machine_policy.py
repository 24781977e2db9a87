from __future__ import annotations

import copy
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, Final

import pytest

from apiserver.apis.meta.errors import StatusError
from apiserver.apis.meta.objects import Object, name_of
from apiserver.apis.meta.users import User
from apiserver.apis.virt.lifecycle import phases
from apiserver.apis.virt.places.resources import MIGRATIONS, VIRTUAL_MACHINES
from tests.fakes.admission import asking
from tests.unit.apiserver.admission.policy.test_policies import World
from tests.unit.charts import forbidden_pods, policies
from tests.unit.charts.forbidden_pods import ACCOUNT
from tests.unit.controller.reconcilers.builders import a_migration

POLICY: Final = "virt-controller-machines.kubevirt.io"
OBJECTS: Final = {VIRTUAL_MACHINES: forbidden_pods.examples(), MIGRATIONS: [a_migration()]}
Change = Callable[[Object], Any]

ALLOWED: Final = MappingProxyType[str, Change](
    {
        "nothing": lambda _: None,
        "the finalizer comes": lambda found: found["metadata"].update(finalizers=["kubevirt.io/x"]),
        "the finalizer goes": lambda found: found["metadata"].pop("finalizers", None),
    }
)
FORBIDDEN: Final = MappingProxyType[str, Change](
    {
        "another spec": lambda found: found["spec"].update(domain={"devices": {"disks": [{"type": "Secret", "source": {"name": "s"}}]}}),
        "no spec": lambda found: found.pop("spec"),
        "a label": lambda found: found["metadata"].setdefault("labels", {}).update({"a": "b"}),
        "an annotation": lambda found: found["metadata"].setdefault("annotations", {}).update({"a": "b"}),
        "an owner, with whom it would go": lambda found: found["metadata"].update(
            ownerReferences=[{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x"}]
        ),
    }
)


@pytest.fixture(scope="module")
def world() -> World:
    return policies.world(forbidden_pods.of_the_chart("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"), POLICY)


async def refusals(world: World, change: Change, *, user: str = ACCOUNT, operation: Any = "UPDATE", subresource: str = "") -> set[str]:
    """Return the reasons against the change of every example VM and a Migration, as one set; an empty string: one may change."""
    said = set()
    for resource, objects in OBJECTS.items():
        for old in objects:
            obj = copy.deepcopy(old)
            change(obj)
            given = asking(resource=resource, operation=operation, name=name_of(old), namespace="default", user=User(user, ()), obj=obj,
                               old=old, subresource=subresource, warn=lambda _: None, annotate=lambda *_: None)  # fmt: skip
            try:
                await world.plugin.validate(given)
            except StatusError as error:
                said.add(str(error))
            else:
                said.add("")
    assert not any("resulted in error" in each for each in said)
    return said


@pytest.mark.parametrize("change", ALLOWED.values(), ids=ALLOWED)
async def test_virt_controller_keeps_its_finalizer(world: World, change: Change) -> None:
    assert await refusals(world, change) == {""}


@pytest.mark.parametrize("change", FORBIDDEN.values(), ids=FORBIDDEN)
async def test_other_changes_are_refused(world: World, change: Change) -> None:
    assert all("and nothing else" in each for each in await refusals(world, change))


@pytest.mark.parametrize("change", FORBIDDEN.values(), ids=FORBIDDEN)
async def test_other_users_and_status_writes_are_not_judged(world: World, change: Change) -> None:
    assert await refusals(world, change, user="alice") == {""}
    assert await refusals(world, change, subresource="status") == {""}


def an_owner(**rest: Any) -> Object:
    return {"apiVersion": "kubevirt.io/v1alpha1", "kind": "VirtualMachine", "name": "testvm", "uid": "uid-1", **rest}


OTHER_OWNER: Final = {"apiVersion": "apps/v1", "kind": "Job", "name": "x", "uid": "x"}


async def adoption(world: World, old_owners: list[Object] | None, owners: list[Object]) -> str:
    old, new = a_migration(), a_migration()
    new["metadata"]["ownerReferences"] = owners
    if old_owners is not None:
        old["metadata"]["ownerReferences"] = old_owners
    return await said_of(world, new, old, "UPDATE")


async def said_of(world: World, new: Object | None, old: Object, operation: Any, user: str = ACCOUNT) -> str:
    given = asking(resource=MIGRATIONS, operation=operation, name="move", namespace="default", user=User(user, ()), obj=new, old=old,
                       subresource="", warn=lambda _: None, annotate=lambda *_: None)  # fmt: skip
    said = ""
    try:
        await world.plugin.validate(given)
    except StatusError as error:
        said = str(error)
    assert "resulted in error" not in said
    return said


@pytest.mark.parametrize("old", [None, [], [OTHER_OWNER]], ids=["no owners", "none", "another"])
async def test_machine_may_become_owner_of_its_migration(world: World, old: list[Object] | None) -> None:
    assert await adoption(world, old, [*(old or []), an_owner()]) == ""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ([OTHER_OWNER], [an_owner()]),
        ([], [OTHER_OWNER]),
        ([], [an_owner(kind="Pod")]),
        ([], [an_owner(apiVersion="kubevirt.io.example/v1")]),
        ([], [an_owner(name="other")]),
        ([], [an_owner(controller=True)]),
        ([], [an_owner(blockOwnerDeletion=True)]),
        ([an_owner()], []),
    ],
    ids=[
        "an owner goes",
        "another owner",
        "another kind",
        "another group",
        "another machine",
        "as controller",
        "blocks",
        "the machine goes",
    ],
)
async def test_other_owners_of_a_migration_are_refused(world: World, old: list[Object], new: list[Object]) -> None:
    assert "and nothing else" in await adoption(world, old, new)


async def test_ended_migrations_may_be_deleted(world: World) -> None:
    for phase in ("", *phases.MIGRATION_PHASES):
        said = await said_of(world, None, a_migration(phase=phase), "DELETE")
        assert (said == "") is (phase in phases.MIGRATION_FINAL), phase
        assert await said_of(world, None, a_migration(phase=phase), "DELETE", user="alice") == ""
    for vm in OBJECTS[VIRTUAL_MACHINES][:1]:
        given = asking(resource=VIRTUAL_MACHINES, operation="DELETE", name=name_of(vm), namespace="default", user=User(ACCOUNT, ()),
                           obj=None, old={**vm, "status": {"phase": "Succeeded"}}, subresource="", warn=lambda _: None,
                           annotate=lambda *_: None)  # fmt: skip
        with pytest.raises(StatusError):
            await world.plugin.validate(given)


def of_set(**rest: Any) -> Object:
    controller = {"kind": "VirtualMachineReplicaSet", "name": "web", "uid": "s", "controller": True, "blockOwnerDeletion": True}
    return {"apiVersion": "kubevirt.io/v1alpha1", **controller, **rest}


async def of_machine(world: World, old: list[Object] | None, new: list[Object] | None, operation: Any) -> str:
    vm = OBJECTS[VIRTUAL_MACHINES][0]
    before, after = ({**vm, "metadata": {**vm["metadata"], "ownerReferences": each or []}} for each in (old, new))
    given = asking(resource=VIRTUAL_MACHINES, operation=operation, name=name_of(vm), namespace="default", user=User(ACCOUNT, ()),
                       obj=after if new is not None else None, old=before if old is not None else None, subresource="",
                       warn=lambda _: None, annotate=lambda *_: None)  # fmt: skip
    said = ""
    try:
        await world.plugin.validate(given)
    except StatusError as error:
        said = str(error)
    assert "resulted in error" not in said
    return said


NOT_OF_SETS: Final = [of_set(controller=False), of_set(kind="VirtualMachine"), of_set(apiVersion="apps/v1"), OTHER_OWNER]


async def test_machines_of_sets_are_created_adopted_and_deleted(world: World) -> None:
    assert await of_machine(world, None, [of_set()], "CREATE") == ""
    assert await of_machine(world, [of_set()], None, "DELETE") == ""
    for old, new in (
        ([], [of_set()]),
        ([of_set()], []),
        ([OTHER_OWNER], [OTHER_OWNER, of_set()]),
        ([OTHER_OWNER, of_set()], [OTHER_OWNER]),
    ):
        assert await of_machine(world, old, new, "UPDATE") == ""


@pytest.mark.parametrize("owner", NOT_OF_SETS, ids=["no controller", "another kind", "another group", "another owner"])
async def test_machines_of_no_set_are_left_alone(world: World, owner: Object) -> None:
    assert "machines of sets" in await of_machine(world, None, [owner], "CREATE")
    assert "machines of sets" in await of_machine(world, [owner], None, "DELETE")
    assert "and nothing else" in await of_machine(world, [], [owner], "UPDATE")
    assert "and nothing else" in await of_machine(world, [owner], [], "UPDATE")
    assert "and nothing else" in await of_machine(world, [owner], [of_set()], "UPDATE")


async def test_migrations_may_be_created_and_machines_not(world: World) -> None:
    said = await refusals(world, lambda _: None, operation="CREATE")
    assert "" in said
    assert all("may only update" in each and "virtualmachines" in each for each in said - {""})
    assert len(said) > 1
