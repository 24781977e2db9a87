from __future__ import annotations

from typing import Any

import pytest

from apiserver.apis.meta.errors import ServiceUnavailable
from apiserver.apis.virt.places import names, streams
from apiserver.client.rest import Client
from apiserver.registry.virt.handler_locator import HandlerLocator, handler_pods
from tests.fakes.kubeapi import FakeAPI

PODS = "/api/v1/pods"


def a_handler(address: str | None, *, phase: str = "Running") -> dict[str, Any]:
    return {
        "metadata": {"name": "virt-handler-1", "namespace": "kubevirt", "labels": {names.COMPONENT_LABEL: names.HANDLER}},
        "spec": {"nodeName": "n"},
        "status": {"phase": phase, "podIP": address},
    }


async def located(pod: dict[str, Any]) -> HandlerLocator:
    api = FakeAPI()
    await api.put(PODS, pod)
    async with api.serving() as config, Client(config, user_agent="test") as client:
        pods = handler_pods(client, "kubevirt")
        pods.remember(await client.get(pods.resource, "virt-handler-1", "kubevirt"))
        return HandlerLocator(pods)


@pytest.mark.parametrize("address", ["10.244.1.7", "fd00:10:244::7"])
async def test_virt_handler_of_a_node_is_where_its_pod_is(address: str) -> None:
    locate = await located(a_handler(address))
    assert await locate("n") == (address, streams.HANDLER_PORT)
    with pytest.raises(ServiceUnavailable):
        await locate("n2")


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "::1", "::ffff:127.0.0.1", "169.254.169.254", "fe80::1", "fd00:ec2::254", "0.0.0.0", "224.0.0.1", "localhost", "", None],
)
async def test_no_node_has_virt_api_dial_what_no_pod_can_have(address: str | None) -> None:
    locate = await located(a_handler(address))
    assert locate.addresses("n") == []
    with pytest.raises(ServiceUnavailable, match='virt-handler on node "n" is not ready'):
        await locate("n")


async def test_a_pod_that_does_not_run_is_not_dialled() -> None:
    assert (await located(a_handler("10.244.1.7", phase="Pending"))).addresses("n") == []
