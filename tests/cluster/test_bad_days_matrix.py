from __future__ import annotations

from typing import Any

import pytest

from tests.cluster import processes
from tests.cluster.guests import is_above, ticks
from tests.cluster.kube import Kubectl, eventually
from tests.cluster.test_bad_days import counting, goes_on, loses_no_write

__all__ = ["counting"]

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


@pytest.mark.parametrize("component", ["virt-api", "virt-controller"])
def test_the_guest_goes_on_and_its_console_comes_back(kubectl: Kubectl, system: Kubectl, counting: dict[str, Any], component: str) -> None:
    goes_on(kubectl, system, counting, component)


def test_no_acknowledged_write_is_lost(kubectl: Kubectl, system: Kubectl) -> None:
    loses_no_write(kubectl, system, "virt-api")


def test_a_guest_survives_the_death_of_its_libvirtd(kubectl: Kubectl, counting: dict[str, Any]) -> None:
    pod = kubectl.api.get("pod", counting["status"]["podName"])
    before = ticks(kubectl, "counting")[-1]

    processes.kill(pod, containing="libvirtd")

    eventually(lambda: any("libvirtd" in each for each in processes.of_pod(pod).values()), timeout=90, what="another libvirtd")
    eventually(lambda: is_above(kubectl, "counting", before + 3), timeout=60, what="the counter")
