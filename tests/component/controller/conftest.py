from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from controller.reconcilers.settings import Times
from tests.component.controller.test_controller import Cluster, working
from tests.fakes.kubeapi import FakeAPI


@pytest.fixture
async def api() -> FakeAPI:
    return FakeAPI()


@pytest.fixture
def requeueing() -> Times:
    return Times()


@pytest.fixture
async def cluster(api: FakeAPI, requeueing: Times) -> AsyncIterator[Cluster]:
    async with working(api, "--no-leader-elect", times=requeueing):
        yield Cluster(api)
