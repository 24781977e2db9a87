from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from apiserver.apis.meta import errors
from tests.cluster.api import Api, condition_of, has, in_phase, is_rolled_out, is_true
from tests.fakes.kubeapi import FakeAPI

PODS = "/api/v1/pods"
SECONDS = 20.0


def a_pod(name: str, phase: str = "Pending", **metadata: Any) -> dict[str, Any]:
    pod = {"metadata": {"name": name, "namespace": "default", **metadata}, "status": {"phase": phase}}
    return {"apiVersion": "v1", "kind": "Pod", **pod}


@pytest.fixture
def fake() -> FakeAPI:
    return FakeAPI()


@pytest.fixture
async def api(fake: FakeAPI, tmp_path: Path) -> AsyncIterator[Api]:
    async with fake.serving() as config:
        kubeconfig = tmp_path / "kubeconfig"
        document = {
            "current-context": "fake",
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "tester"}}],
            "clusters": [{"name": "fake", "cluster": {"server": config.server}}],
            "users": [{"name": "tester", "user": {"token": config.token}}],
        }
        kubeconfig.write_text(yaml.safe_dump(document))
        yield Api(kubeconfig, "default")


def watches(fake: FakeAPI) -> int:
    return sum("watch" in query for _, _, query in fake.requests)


async def watched(fake: FakeAPI, times: int = 1) -> None:
    async with asyncio.timeout(SECONDS):
        while watches(fake) < times:
            await asyncio.sleep(0.01)


async def while_waiting(fake: FakeAPI, wait: Callable[[], Any], meanwhile: Callable[[], Awaitable[Any]]) -> Any:
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(asyncio.to_thread(wait))
        await watched(fake, watches(fake) + 1)
        await meanwhile()
    return waiting.result()


async def cut(fake: FakeAPI) -> None:
    await fake.cut()


async def expired(fake: FakeAPI) -> None:
    fake.drop_events(on=True)
    await fake.expire()


async def expired_in_the_watch(fake: FakeAPI) -> None:
    fake.refusals = [errors.ServiceUnavailable("the server is starting"), errors.Expired("too old resource version")]
    await fake.cut()


async def away(fake: FakeAPI) -> None:
    fake.refusals = [web.Response(status=503, text="service unavailable") for _ in range(3)]
    await fake.cut()


async def crowded(fake: FakeAPI) -> None:
    fake.refusals = [errors.TooManyRequests("too many requests, please try again later")]
    await fake.cut()


async def broken(fake: FakeAPI) -> None:
    fake.refusals = [web.Response(body=b'{"kind": "List", "ite', content_type="application/json")]
    await fake.cut()


@pytest.mark.parametrize("harm", [cut, expired, expired_in_the_watch, away, crowded, broken], ids=lambda each: each.__name__)
async def test_a_wait_survives(api: Api, fake: FakeAPI, harm: Callable[[FakeAPI], Awaitable[None]]) -> None:
    await fake.put(PODS, a_pod("p"))

    async def meanwhile() -> None:
        await harm(fake)
        await fake.put(PODS, a_pod("p", "Running"))
        fake.drop_events(on=False)

    found = await while_waiting(fake, lambda: api.until("pods", "p", in_phase("Running"), timeout=SECONDS, what="p runs"), meanwhile)
    assert found["status"]["phase"] == "Running"
    assert fake.refusals == []


async def test_a_wait_ends_at_once_where_there_is_nothing_to_wait_for(api: Api, fake: FakeAPI) -> None:
    await fake.put(PODS, a_pod("p", "Running"))
    found = await asyncio.to_thread(lambda: api.until("pod", "p", in_phase("Running"), timeout=SECONDS, what="p runs"))
    assert found["metadata"]["name"] == "p"
    await asyncio.to_thread(lambda: api.gone("pods", "q", timeout=SECONDS))


async def test_every_state_is_seen_and_an_absent_object_is_waited_for(api: Api, fake: FakeAPI) -> None:
    seen: list[str] = []

    def check(pod: dict[str, Any]) -> bool:
        seen.append(pod["status"]["phase"])
        time.sleep(0.02)
        return seen[-1] == "Succeeded"

    async def meanwhile() -> None:
        for phase in ("Pending", "Running", "Succeeded"):
            await fake.put(PODS, a_pod("p", phase))
            await fake.put(PODS, a_pod("another", phase))

    await while_waiting(fake, lambda: api.until("pods", "p", check, timeout=SECONDS, what="p has ended"), meanwhile)
    assert seen == ["Pending", "Running", "Succeeded"]


async def test_a_check_may_ask_the_server_and_its_error_ends_the_wait(api: Api, fake: FakeAPI) -> None:
    await fake.put(PODS, a_pod("p"))

    def check(pod: dict[str, Any]) -> bool:
        return bool(api.get("pods", "absent"))

    with pytest.raises(errors.NotFound, match='"absent" not found'):
        await asyncio.to_thread(lambda: api.until("pods", "p", check, timeout=SECONDS, what="never"))


async def test_a_field_that_a_check_reads_is_waited_for(api: Api, fake: FakeAPI) -> None:
    await fake.put(PODS, a_pod("p"))

    def wait(seconds: float) -> dict[str, Any]:
        return api.until("pods", "p", lambda pod: pod["status"]["podIPs"][0], timeout=seconds, what="an address")

    with pytest.raises(AssertionError, match="the check found nothing at 'podIPs'"):
        await asyncio.to_thread(wait, 0.5)

    async def meanwhile() -> None:
        await fake.edit(PODS, "default", "p", lambda pod: pod["status"].update(podIPs=[{"ip": "10.0.0.1"}]))

    assert (await while_waiting(fake, lambda: wait(SECONDS), meanwhile))["status"]["podIPs"] == [{"ip": "10.0.0.1"}]


async def test_a_refusal_ends_the_wait(api: Api, fake: FakeAPI) -> None:
    fake.authorize = lambda *_: False
    with pytest.raises(errors.Forbidden, match="is not allowed"):
        await asyncio.to_thread(lambda: api.until("pods", "p", lambda _: True, timeout=SECONDS, what="never"))


async def test_failure_shows_the_awaited_and_the_last_state(api: Api, fake: FakeAPI) -> None:
    await fake.put(PODS, a_pod("p", "Unknown", managedFields=[{"manager": "somebody"}]))

    async def meanwhile() -> None:
        fake.refusals = [web.Response(status=503, text="service unavailable") for _ in range(100)]
        await fake.cut()

    with pytest.raises(ExceptionGroup) as failed:
        await while_waiting(fake, lambda: api.until("pods", "p", in_phase("Running"), timeout=1, what="p runs"), meanwhile)
    message = str(failed.value.exceptions[0])
    assert message.startswith("p runs: not within 1 s; last seen: {")
    assert '"phase": "Unknown"' in message
    assert "somebody" not in message
    assert "then ServiceUnavailable: " in message


async def test_a_list_is_waited_for(api: Api, fake: FakeAPI) -> None:
    async def meanwhile() -> None:
        for name in ("b", "a", "c"):
            await fake.put(PODS, a_pod(name, labels={"app": "x"}))
        await fake.put(PODS, a_pod("other"))
        await fake.remove(PODS, "default", "c")

    found = await while_waiting(
        fake,
        lambda: api.until_list("pods", lambda pods: len(pods) == 2, label_selector="app=x", timeout=SECONDS, what="two pods"),
        meanwhile,
    )
    assert [each["metadata"]["name"] for each in found] == ["a", "b"]


async def test_a_namesake_is_another_object(api: Api, fake: FakeAPI) -> None:
    await fake.put(PODS, a_pod("p"))

    async def meanwhile() -> None:
        fake.drop_events(on=True)
        await fake.remove(PODS, "default", "p")
        await fake.put(PODS, a_pod("p"))
        fake.drop_events(on=False)
        await fake.expire()

    await while_waiting(fake, lambda: api.gone("pods", "p", timeout=SECONDS), meanwhile)


async def test_a_deletion_is_waited_for(api: Api, fake: FakeAPI) -> None:
    await fake.put(PODS, a_pod("p", finalizers=["a/b"]))
    with pytest.raises(AssertionError, match=r"the end of pods/p: not within 0 s; last seen: .*deletionTimestamp"):
        await asyncio.to_thread(lambda: api.delete("pods", "p", timeout=0.3, grace_period=0))
    assert fake.writes[-1][2] == {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background", "gracePeriodSeconds": 0}

    async def meanwhile() -> None:
        await fake.edit(PODS, "default", "p", lambda pod: pod["metadata"].pop("finalizers"))

    await while_waiting(fake, lambda: api.delete_all("pods", timeout=SECONDS), meanwhile)


async def test_objects_are_created_merged_and_found(api: Api, fake: FakeAPI) -> None:
    def requests() -> None:
        api.create(a_pod("p", labels={"a": "1"}))
        with pytest.raises(errors.AlreadyExists):
            api.create(a_pod("p"))
        (merged,) = api.apply(a_pod("p", "Running", labels={"b": "2"}))
        assert merged["metadata"]["labels"] == {"a": "1", "b": "2"}
        assert api.patch("pods", "p", {"metadata": {"labels": {"a": None}}})["metadata"]["labels"] == {"b": "2"}
        assert [each["status"]["phase"] for each in api.list("pods", label_selector="b=2")] == ["Running"]
        assert api.within("elsewhere").list("pods") == []
        assert api.within("").list("pods") == api.list("pods") != []
        assert api.find("pods", "q") is None

    await asyncio.to_thread(requests)


async def test_replaced_object_drops_missing_fields(api: Api, fake: FakeAPI) -> None:
    await fake.put("/api/v1/configmaps", {"metadata": {"name": "c", "namespace": "default"}, "data": {"one": "1"}})
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"two": "2"}}
    assert (await asyncio.to_thread(api.replace, config))["data"] == {"two": "2"}


async def test_events_of_a_reason_and_an_object_are_waited_for(api: Api, fake: FakeAPI) -> None:
    async def happened(name: str, reason: str, of: str) -> None:
        event = {"metadata": {"name": name, "namespace": "default"}, "reason": reason, "involvedObject": {"name": of}}
        await fake.put("/api/v1/events", event)

    async def meanwhile() -> None:
        await happened("a", "Started", "q")
        await happened("b", "Stopped", "p")
        await happened("c", "Started", "p")

    found = await while_waiting(fake, lambda: api.events("Started", of="p", timeout=SECONDS), meanwhile)
    assert [each["metadata"]["name"] for each in found] == ["c"]
    assert len(await asyncio.to_thread(lambda: api.events("Started", timeout=SECONDS))) == 2


def test_a_condition_is_chosen_by_its_fields() -> None:
    told = {"type": "DisksReady", "status": "False", "reason": "DiskInUse"}
    obj = {"status": {"conditions": [{"type": "Ready", "status": "True"}, told]}}
    assert has("DisksReady", reason="DiskInUse", status="False")(obj)
    assert not has("DisksReady", reason="DiskFull")(obj)
    assert not has("Paused", status="True")(obj)
    assert condition_of(obj, "DisksReady") == told
    assert condition_of({}, "DisksReady") == {}


@pytest.mark.parametrize(("judged", "holds"), [({}, True), ({"observedGeneration": 2}, True), ({"observedGeneration": 1}, False)])
def test_condition_older_than_the_last_edit_does_not_count(judged: dict[str, Any], holds: bool) -> None:
    obj = {"metadata": {"generation": 2}, "status": {"conditions": [{"type": "Ready", "status": "True", **judged}]}}
    assert is_true("Ready")(obj) is holds
    assert not is_true("Ready", "False")(obj)
    assert not is_true("Live")(obj)


DONE = {"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}
EVERYWHERE = {"observedGeneration": 2, "desiredNumberScheduled": 2, "updatedNumberScheduled": 2, "numberAvailable": 2}
LATE = {"conditions": [{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]}


@pytest.mark.parametrize(
    ("status", "holds"),
    [
        (DONE, True),
        ({}, False),
        (DONE | {"observedGeneration": 1}, False),
        (DONE | {"replicas": 3}, False),
        (DONE | {"updatedReplicas": 1}, False),
        (DONE | {"replicas": 1, "updatedReplicas": 1}, False),
        (DONE | {"availableReplicas": 1}, False),
        (DONE | LATE, False),
        (EVERYWHERE, True),
        (EVERYWHERE | {"observedGeneration": 1}, False),
        (EVERYWHERE | {"updatedNumberScheduled": 1}, False),
        (EVERYWHERE | {"numberAvailable": 1}, False),
    ],
)
def test_workload_is_rolled_out_as_kubectl_decides(status: dict[str, Any], holds: bool) -> None:
    assert is_rolled_out({"metadata": {"generation": 2}, "spec": {"replicas": 2}, "status": status}) is holds
