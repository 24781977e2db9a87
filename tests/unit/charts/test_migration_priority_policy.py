from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest
import yaml

from apiserver.admission.metrics import AdmissionMetrics
from apiserver.admission.policy import validating
from apiserver.admission.policy.metrics import ValidatingMetrics
from apiserver.admission.policy.plugin import PolicyDispatcher
from apiserver.admission.policy.source import Source
from apiserver.admission.policy.validating import ValidatingPolicies
from apiserver.apis.meta.errors import StatusError
from apiserver.apis.meta.objects import name_of
from apiserver.apis.meta.users import User
from apiserver.apis.virt.places.resources import MIGRATIONS
from apiserver.cel.library.authz import Answer, Question
from apiserver.metrics.instruments import Registry
from apiserver.registry.generic.admission import Attributes
from controller.manager import options
from controller.reconcilers.settings import MigrationLimits
from tests.fakes.versions import OneVersion
from tests.unit.charts import forbidden_pods
from tests.unit.controller.reconcilers.builders import a_migration

POLICY: Final = "migration-priorities.kubevirt.io"
ADMINISTRATOR: Final = User("cordons-nodes", ())
TENANT: Final = User("makes-migrations", ())


class Cluster(OneVersion):
    def __init__(self) -> None:
        self.synced = asyncio.Event()
        self.synced.set()

    async def get(self, name: str) -> dict[str, Any]:
        return {"metadata": {"name": name}}

    async def ask(self, question: Question) -> Answer:
        asked = (question.verb, question.group, question.resource, question.subresource, question.name, question.namespace)
        assert asked == ("patch", "", "nodes", "", "", "")
        return Answer(question.user == ADMINISTRATOR.name)


@pytest.fixture(scope="module")
def policies() -> ValidatingPolicies:
    cluster: Any = Cluster()
    metrics = ValidatingMetrics()
    metrics.register(Registry())
    nobody: Any = None
    source = Source(nobody, MIGRATIONS, MIGRATIONS, cluster, validating.compile_policy)
    for each in forbidden_pods.of_the_chart("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"):
        if name_of(each) == POLICY:
            (source._policy_changed if each["kind"] == "ValidatingAdmissionPolicy" else source._binding_changed)(None, each)
    source.known.set()
    return ValidatingPolicies(PolicyDispatcher(source, cluster, cluster, cluster.ask, AdmissionMetrics()), metrics)


async def refusal(policies: ValidatingPolicies, priority: int | None, user: User) -> str:
    made = a_migration()
    if priority is not None:
        made["spec"]["priority"] = priority
    given: Any = {"operation": "CREATE", "namespace": "default", "user": user, "obj": made, "old": None}
    said = ""
    try:
        await policies.validate(Attributes(resource=MIGRATIONS, name="move", warn=lambda _: None, annotate=lambda *_: None, **given))
    except StatusError as error:
        said = str(error)
    assert "resulted in error" not in said
    return said


@pytest.mark.parametrize("priority", [None, 0, -1, -100])
async def test_any_user_may_lower_the_priority(policies: ValidatingPolicies, priority: int | None) -> None:
    assert await refusal(policies, priority, TENANT) == ""


@pytest.mark.parametrize("priority", [1, 100])
async def test_raised_priority_needs_the_right_to_cordon(policies: ValidatingPolicies, priority: int) -> None:
    assert await refusal(policies, priority, ADMINISTRATOR) == ""
    assert "requires the right to patch nodes" in await refusal(policies, priority, TENANT)


def test_chart_values_equal_the_flag_defaults() -> None:
    values = yaml.safe_load((forbidden_pods.ROOT / "charts/kubevirt/values.yaml").read_text())["migrations"]
    given = MigrationLimits(values["perNode"], values["perCluster"], values["schedulingSeconds"], values["kept"])
    assert given == MigrationLimits() == options.parse(["--launcher-image=x"]).migrations
