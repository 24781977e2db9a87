from __future__ import annotations

from typing import Any, Final, get_args

import pytest
import yaml

from apiserver.apis.meta.errors import StatusError
from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.users import User
from apiserver.apis.virt.lifecycle import evictions
from apiserver.apis.virt.places import names
from apiserver.apis.virt.places.resources import MIGRATIONS
from controller.evictions.eviction_plan import Limits
from tests.fakes.admission import asking
from tests.unit.apiserver.admission.policy.test_policies import World
from tests.unit.charts import forbidden_pods, policies
from tests.unit.charts.forbidden_pods import ACCOUNT
from tests.unit.controller.reconcilers.builders import a_migration

POLICY: Final = "evictions.kubevirt.io"
LABEL: Final = ("labels", evictions.POD_LABEL)
DRAIN: Final = ("labels", evictions.DRAIN_LABEL)
ANNOTATION: Final = ("annotations", evictions.NODE_ANNOTATION)
UPDATE: Final = ("labels", names.WORKLOAD_UPDATE_LABEL)
MARKS: Final = (LABEL, DRAIN, ANNOTATION, UPDATE)


@pytest.fixture(scope="module")
def world() -> World:
    return policies.world(forbidden_pods.of_the_chart("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"), POLICY)


def marked(*marks: tuple[str, str, str]) -> Object:
    made = a_migration()
    made["metadata"] |= {"labels": {"app": "db"}, "annotations": {"app": "db"}}
    for kind, key, value in marks:
        made["metadata"][kind][key] = value
    return made


async def refusal(world: World, obj: Object, old: Object | None = None, *, user: str = "alice", subresource: str = "") -> str:
    operation: Any = "CREATE" if old is None else "UPDATE"
    given = asking(resource=MIGRATIONS, operation=operation, name="move", namespace="default", user=User(user, ()), obj=obj, old=old,
                       subresource=subresource, warn=lambda _: None, annotate=lambda *_: None)  # fmt: skip
    said = ""
    try:
        await world.plugin.validate(given)
    except StatusError as error:
        said = str(error)
    assert "resulted in error" not in said
    return said


@pytest.mark.parametrize(("kind", "key"), MARKS)
async def test_only_virt_controller_creates_marked_migrations(world: World, kind: str, key: str) -> None:
    assert f"only virt-controller may set the {kind.removesuffix('s')} {key}" in await refusal(world, marked((kind, key, "x")))
    assert await refusal(world, marked((kind, key, "x")), user=ACCOUNT) == ""


@pytest.mark.parametrize(("kind", "key"), MARKS)
async def test_only_virt_controller_changes_a_mark(world: World, kind: str, key: str) -> None:
    others = [(*each, "kept") for each in MARKS if each != (kind, key)]
    without, one, two = marked(*others), marked(*others, (kind, key, "1")), marked(*others, (kind, key, "2"))
    for old, new in ((without, one), (one, two), (one, without)):
        assert f"only virt-controller may set the {kind.removesuffix('s')} {key}" in await refusal(world, new, old)
        assert await refusal(world, new, old, user=ACCOUNT) == ""


async def test_everything_else_of_such_a_migration_may_be_edited(world: World) -> None:
    old = marked(*((*each, "1") for each in MARKS))
    new = {**old, "metadata": {**old["metadata"], "labels": {**old["metadata"]["labels"], "app": "web"}, "finalizers": []}}
    assert await refusal(world, new, old) == ""
    bare = a_migration()
    assert await refusal(world, bare) == await refusal(world, bare, bare) == ""


def test_chart_values_equal_the_flag_defaults() -> None:
    values = yaml.safe_load((forbidden_pods.ROOT / "charts/kubevirt/values.yaml").read_text())
    given = Limits(values["evictionStrategy"], values["migrations"]["perNode"], values["migrations"]["perCluster"])
    assert given == Limits()
    schema = yaml.safe_load((forbidden_pods.ROOT / "charts/kubevirt/values.schema.json").read_text())
    assert schema["properties"]["evictionStrategy"]["enum"] == list(get_args(evictions.Strategy))
