from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from apiserver.admission import plugins
from apiserver.admission.chain import Chain
from apiserver.admission.changes import Changes
from apiserver.admission.metrics import AdmissionMetrics
from apiserver.apis.meta.errors import Forbidden
from apiserver.apis.meta.resources import Resource
from apiserver.metrics.instruments import Registry
from apiserver.registry.generic.admission import Attributes, Operation

THINGS = Resource("g.test", "v1", "things", "Thing")


class Plugin:
    def __init__(self, name: str, log: list[str], act: Callable[[Attributes], None] = lambda _: None, *, only: str = "") -> None:
        self.name = name
        self._log = log
        self._act = act
        self._only = only

    def handles(self, operation: Operation, resource: Resource, subresource: str) -> bool:
        return self._only in ("", operation)

    async def mutate(self, attributes: Attributes) -> None:
        self._log.append(f"{self.name} mutates")
        self._act(attributes)

    async def validate(self, attributes: Attributes) -> None:
        self._log.append(f"{self.name} validates")
        self._act(attributes)


def refuse(_: Attributes) -> None:
    raise Forbidden("no")


def again(attributes: Attributes) -> None:
    attributes.reinvocation.requested = True


def test_plugins_are_on_and_off_as_in_go() -> None:
    default = (
        "NamespaceLifecycle", "NodeRestriction", "MutatingAdmissionPolicy", "MutatingAdmissionWebhook", "ValidatingAdmissionPolicy",
        "ValidatingAdmissionWebhook", "PodRestriction",
    )  # fmt: skip
    assert plugins.enabled((), ()) == default
    assert plugins.enabled((), ("MutatingAdmissionPolicy",)) == tuple(each for each in default if each != "MutatingAdmissionPolicy")
    assert plugins.enabled(("ResourceQuota",), ()) == (*default, "ResourceQuota")
    with pytest.raises(ValueError, match='enable-admission-plugins plugin "Nope" is unknown'):
        plugins.enabled(("Nope",), ())
    with pytest.raises(ValueError, match="overlapped"):
        plugins.enabled(("ResourceQuota",), ("ResourceQuota",))


async def test_the_first_refusal_ends_it() -> None:
    log: list[str] = []
    chain = Chain(
        mutating=[Plugin("a", log), Plugin("b", log, refuse), Plugin("c", log)],
        validating=[Plugin("d", log)],
        metrics=AdmissionMetrics(),
        changes=Changes(),
    )
    with pytest.raises(Forbidden):
        await chain.mutate(Attributes("CREATE", THINGS))
    await chain.validate(Attributes("CREATE", THINGS))
    assert log == ["a mutates", "b mutates", "d validates"]


async def test_the_chain_runs_at_most_twice() -> None:
    log: list[str] = []
    chain = Chain(mutating=[Plugin("a", log), Plugin("b", log, again)], validating=(), metrics=AdmissionMetrics(), changes=Changes())
    attributes = Attributes("CREATE", THINGS)
    await chain.mutate(attributes)
    assert log == ["a mutates", "b mutates"] * 2
    assert attributes.reinvocation.again


async def test_only_those_who_handle_it_are_asked() -> None:
    log: list[str] = []
    chain = Chain(
        mutating=[Plugin("a", log, only="DELETE"), Plugin("b", log)], validating=(), metrics=AdmissionMetrics(), changes=Changes()
    )
    await chain.mutate(Attributes("CREATE", THINGS))
    assert log == ["b mutates"]
    lone = Chain(mutating=[Plugin("a", log, only="DELETE")], validating=(), metrics=AdmissionMetrics(), changes=Changes())
    assert (lone.handles("DELETE", THINGS, ""), lone.handles("CREATE", THINGS, "")) == (True, False)


async def test_admission_steps_and_rejections_are_counted() -> None:
    metrics, registry = AdmissionMetrics(), Registry()
    metrics.register(registry)
    chain = Chain(mutating=[Plugin("a", []), Plugin("b", [], refuse)], validating=(), metrics=metrics, changes=Changes())
    with pytest.raises(Forbidden):
        await chain.mutate(Attributes("UPDATE", THINGS))
    page = registry.page().decode()
    prefix = "apiserver_admission_controller_admission_duration_seconds_count"
    assert f'{prefix}{{name="a",type="admit",operation="UPDATE",rejected="false"}} 1' in page
    assert f'{prefix}{{name="b",type="admit",operation="UPDATE",rejected="true"}} 1' in page
    assert 'apiserver_admission_step_admission_duration_seconds_summary_count{type="admit",operation="UPDATE",rejected="true"} 1' in page


class Choosy(Plugin):
    asked = 0
    wants = False

    def handles(self, operation: Operation, resource: Resource, subresource: str) -> bool:
        self.asked += 1
        return self.wants


async def test_plugins_are_asked_once_per_change_whether_they_handle() -> None:
    changes, known = Changes(), asyncio.Event()
    changes.wait_for(known)
    plugin = Choosy("a", [])
    chain = Chain(mutating=[plugin], validating=(), metrics=AdmissionMetrics(), changes=changes)
    for expected in (1, 2):
        assert not chain.handles("CREATE", THINGS, "")
        assert plugin.asked == expected
    known.set()
    for _ in range(3):
        assert not chain.handles("CREATE", THINGS, "")
    assert plugin.asked == 3
    plugin.wants = True
    changes.note()
    assert chain.handles("CREATE", THINGS, "")
    assert chain.handles("DELETE", THINGS, "")
