from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from apiserver.apis.meta import errors
from apiserver.apis.meta.objects import condition
from apiserver.client.rest import Client
from controller.reconcilers.actions import CreatePod, Emit, Requeue, WriteStatus
from controller.reconcilers.pods import networks
from controller.reconcilers.pods.networks import Definition, Found
from controller.reconcilers.settings import Settings, Times
from controller.reconcilers.virtual_machines.gathering import reads_networks
from controller.reconcilers.virtual_machines.observed import Observed
from controller.reconcilers.virtual_machines.virtual_machine_plan import plan
from tests.fakes.kubeapi import FakeAPI
from tests.unit.controller.reconcilers.builders import a_pod, a_vm, an_attempt

CARDS = [
    {"name": "default"},
    {"name": "lan", "network": "lan"},
    {"name": "again", "network": "lan"},
    {"name": "wan", "network": "default/wan"},
]
DOMAIN = {"memory": {"guest": "64Mi"}, "devices": {"interfaces": CARDS}}
RESOURCE = "/apis/k8s.cni.cncf.io/v1/network-attachment-definitions"


def seen(vm: dict[str, Any], *pods: dict[str, Any], second: int = 5, missing: tuple[str, ...] = (), broken: str = "") -> Observed:
    now = datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC)
    found = Found(missing, (Definition("default/lan", "lan", broken),))
    return Observed(vm=vm, pods=pods, claims={}, now=now, settings=Settings("launcher"), networks=found)


def a_starting_vm(*, lacks: bool = False) -> dict[str, Any]:
    vm = a_vm(phase="Scheduling", attempts=[an_attempt()], domain=DOMAIN)
    if lacks:
        (written,) = (each.status for each in plan(seen(vm, pending(), missing=("default/lan",))) if isinstance(each, WriteStatus))
        vm["status"] = written
    return vm


def pending() -> dict[str, Any]:
    pod = a_pod(phase="Pending")
    pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    return pod


def status_of(actions: tuple[Any, ...]) -> dict[str, Any]:
    return next(each.status for each in actions if isinstance(each, WriteStatus))


def test_without_its_network_no_pod_is_made() -> None:
    vm = a_vm(domain=DOMAIN)
    actions = plan(seen(vm, missing=("default/lan", "default/wan")))
    assert not any(isinstance(each, CreatePod) for each in actions)
    assert status_of(actions)["phase"] == "Pending"
    for kind in ("Ready", "NetworkReady"):
        told = condition(status_of(actions)["conditions"], kind)
        assert told is not None
        assert (told["status"], told["reason"]) == ("False", "NetworkNotFound")
        assert "not found: default/lan, default/wan;" in told["message"]
    assert [each.reason for each in actions if isinstance(each, Emit)] == ["NetworkNotFound"]
    assert Requeue(Times().networks) in actions


def test_network_deleted_during_the_start_is_reported_only() -> None:
    actions = plan(seen(a_starting_vm(), pending(), missing=("default/lan",)))
    assert status_of(actions)["phase"] == "Scheduling"
    assert (condition(status_of(actions)["conditions"], "NetworkReady") or {})["reason"] == "NetworkNotFound"
    assert {type(each) for each in actions} == {WriteStatus, Emit, Requeue}
    again = plan(seen({**a_starting_vm(lacks=True)}, pending(), missing=("default/lan",)))
    assert [type(each) for each in again] == [Requeue]


def test_network_condition_is_cleared_once_it_exists() -> None:
    vm = a_starting_vm(lacks=True)
    for pods, second in (((pending(),), 5), ((a_pod(),), 5), ((a_pod(phase="Failed", exit_code=1),), 5)):
        conditions = status_of(plan(seen(vm, *pods, second=second)))["conditions"]
        assert condition(conditions, "NetworkReady") is None


def test_networks_are_rechecked_while_the_pod_starts() -> None:
    assert plan(seen(a_starting_vm(), pending())) == (Requeue(Times().networks),)
    (plain,) = plan(seen(a_vm(phase="Scheduling", attempts=[an_attempt()]), pending()))
    assert isinstance(plain, Requeue)
    assert plain.seconds > Times().networks


@pytest.mark.parametrize(
    ("vm", "looks"),
    [
        (a_vm(domain=DOMAIN), True),
        (a_vm(), False),
        (a_vm(domain=DOMAIN, runStrategy="Halted"), False),
        (a_starting_vm(), True),
        (a_vm(phase="Running", attempts=[an_attempt()], domain=DOMAIN), False),
    ],
    ids=["to start", "without networks", "off", "starting", "running"],
)
def test_networks_are_asked_for_while_a_machine_starts(vm: dict[str, Any], *, looks: bool) -> None:
    assert reads_networks(vm) == looks


def test_broken_network_is_reported_before_and_during_the_start() -> None:
    for vm, pods, phase in ((a_vm(domain=DOMAIN), (), "Pending"), (a_starting_vm(), (pending(),), "Scheduling")):
        actions = plan(seen(vm, *pods, broken="spec.config is not a JSON object"))
        assert not any(isinstance(each, CreatePod) for each in actions)
        assert status_of(actions)["phase"] == phase
        for kind in ("Ready", "NetworkReady"):
            told = condition(status_of(actions)["conditions"], kind) or {}
            assert (told["status"], told["reason"]) == ("False", "NetworkNotUsable")
            assert told["message"] == (
                "NetworkAttachmentDefinition default/lan: spec.config is not a JSON object; the virtual machine starts once that is fixed"
            )
        vm["status"] = status_of(actions)
        assert condition(status_of(plan(seen(vm, *pods)))["conditions"], "NetworkReady") is None
    both = status_of(plan(seen(a_vm(domain=DOMAIN), missing=("default/wan",), broken="x")))["conditions"]
    assert (condition(both, "NetworkReady") or {})["reason"] == "NetworkNotFound"


@pytest.mark.parametrize(
    ("config", "called", "problem"),
    [
        ('{"type": "bridge", "name": "inner"}', "inner", ""),
        ('{"Type": "bridge", "name": ""}', "lan", ""),
        ('{"plugins": [{"type": "bridge"}]}', "lan", ""),
        (None, "lan", ""),
        ("", "lan", ""),
        (7, "lan", ""),
        (" " * networks.MAX_CONFIGURATION + "{", "lan", ""),
        ("{", "lan", "is not valid JSON: Expecting property name"),
        ("[" * 60_000, "lan", "not valid JSON: "),
        ("[]", "lan", "not a JSON object"),
        ('{"name": "inner"}', "inner", "set type or plugins"),
        ('{"type": ""}', "lan", "set type or plugins"),
        ('{"plugins": []}', "lan", "set type or plugins"),
        ('{"plugins": [{"name": "x"}]}', "lan", "a plugin has no type"),
        ('{"plugins": ["bridge"], "name": 7}', "lan", "a plugin has no type"),
    ],
)
def test_a_configuration_is_judged_as_far_as_every_plugin_has_to(config: object, called: str, problem: str) -> None:
    found = networks.read("default", "lan", {"spec": {"config": config}})
    assert (found.network, found.called) == ("default/lan", called)
    assert problem in found.problem
    assert bool(problem) == bool(found.problem)


async def test_each_network_is_requested_once_and_reported_if_missing() -> None:
    api = FakeAPI()
    vm = a_vm(domain=DOMAIN)
    async with api.serving() as config, Client(config, user_agent="test") as client:
        assert await networks.gather(client, vm) == Found(("default/lan", "default/wan"))
        await api.put(RESOURCE, {"metadata": {"name": "wan", "namespace": "default"}, "spec": {"config": "nonsense"}})
        found = await networks.gather(client, vm)
        assert (found.missing, [each.network for each in found.definitions]) == (("default/lan",), ["default/wan"])
        assert found.definitions[0].problem == "spec.config is not valid JSON: Expecting value: line 1 column 1 (char 0)"
        assert len(api.requests) == 4
        api.refusals = [errors.Forbidden("not by this chart")]
        assert (await networks.gather(client, vm)).missing == ()


async def test_only_cards_with_a_usable_network_come_with_a_migration() -> None:
    api = FakeAPI()
    vm = a_vm(domain=DOMAIN)
    vm["status"] = {"domain": {"liveChanges": ["interface"]}, "running": {"domain": {"devices": {"interfaces": []}}}}
    async with api.serving() as config, Client(config, user_agent="test") as client:
        assert await networks.coming(client, vm) == ("default",)
        for name, config_ in (("wan", "nonsense"), ("lan", '{"type": "bridge"}')):
            await api.put(RESOURCE, {"metadata": {"name": name, "namespace": "default"}, "spec": {"config": config_}})
        assert await networks.coming(client, vm) == ("default", "lan", "again")
        vm["status"]["domain"] = {}
        assert await networks.coming(client, vm) == ()


@pytest.mark.parametrize("text", ["[" * 50_000, '{"a": ' + "1" * 5000 + "}"])
def test_invalid_network_configuration_is_reported_plainly(text: str) -> None:
    problem = networks.read("default", "lan", {"spec": {"config": text}}).problem
    assert problem == "spec.config is not valid JSON: it is nested too deeply or contains a number with too many digits"
