"""The guest's DHCP server: messages when it ended, and when its restart failed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from apiserver.apis.meta.objects import condition
from handler.reconcilers.guests import dhcp_faults, guest_status
from launcher.protocol import messages

THEN, NOW = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 1, tzinfo=UTC)


def observed(restarts: int = 0, problem: str = "", cause: str = "", *, stopping: bool = False) -> messages.Status:
    return messages.Status(1, dhcp=messages.DhcpStatus(restarts, problem, cause), stopping=stopping)


def written(vm: dict[str, Any], seen: messages.Status, now: datetime, fault: guest_status.NetworkFault | None = None) -> dict[str, Any]:
    """Return the status as virt-handler assembles it."""
    status = guest_status.with_network(vm, vm["status"], fault or dhcp_faults.fault(seen), now)
    return dict(dhcp_faults.with_restarts(vm, status, seen, now))


def told(status: dict[str, Any]) -> tuple[str, str, str]:
    found = condition(status.get("conditions"), "NetworkReady") or {}
    return str(found.get("status")), str(found.get("reason")), str(found.get("message"))


def a_vm(**status: Any) -> dict[str, Any]:
    return {"metadata": {"generation": 3}, "status": status}


def test_of_a_server_that_never_died_nothing_is_said() -> None:
    vm = a_vm()
    assert written(vm, observed(), NOW) == {}
    assert dhcp_faults.news(vm, {}) is None


def test_that_it_was_started_again_is_said_once_for_each_time() -> None:
    vm = a_vm()
    for restarts, said in ((1, "once in this pod"), (2, "2 times in this pod")):
        status = written(vm, observed(restarts, cause="its socket\n\x1bis gone"), NOW)
        words = f"the guest's DHCP server died and was started again, {said}; the last time: its socket | is gone"
        assert told(status) == ("True", "DHCPRestarted", words)
        assert dhcp_faults.news(vm, status) == ("DHCPRestarted", words)
        vm["status"] = status
        assert written(vm, observed(restarts, cause="its socket\n\x1bis gone"), NOW) == status
        assert dhcp_faults.news(vm, status) is None


def test_while_it_cannot_be_started_again_the_network_is_not_ready_and_then_it_is() -> None:
    vm = a_vm()
    vm["status"] = written(vm, observed(1, cause="x"), THEN)
    dead = observed(1, "serve DHCP on k6t-eth0: No such device", "k6t-eth0 is gone")
    status = written(vm, dead, NOW)
    assert told(status) == (
        "False",
        "DHCPNotServed",
        "the guest's DHCP server died (k6t-eth0 is gone) and does not start again: serve DHCP on k6t-eth0: No such device; "
        "a guest that has its address goes on; one that asks for it gets no answer until then",
    )
    assert dhcp_faults.news(vm, status) == told(status)[1:]
    vm["status"] = status
    assert written(vm, dead, NOW) == status
    assert told(written(vm, observed(2, cause="k6t-eth0 is gone"), NOW))[:2] == ("True", "DHCPRestarted")


def test_another_fault_of_the_network_goes_before() -> None:
    fault = guest_status.NetworkFault("NetworkNotReady", "nft failed")
    status = written(a_vm(), observed(1, "no device", "x"), NOW, fault)
    assert told(status) == ("False", "NetworkNotReady", "nft failed")
    assert dhcp_faults.news(a_vm(), status) is None


def test_in_another_pod_it_is_another_server() -> None:
    vm = a_vm()
    vm["status"] = written(vm, observed(1, cause="x"), THEN)
    assert told(written(vm, observed(), NOW)) == ("True", "Ready", "")


@pytest.mark.parametrize("seen", [observed(1 << 62, cause="x" * 9999), observed(0, "p" * 9999, "x" * 9999)])
def test_what_a_launcher_says_is_bounded(seen: messages.Status) -> None:
    assert len(told(written(a_vm(), seen, NOW))[2]) <= guest_status.MAX_MESSAGE


def test_a_guest_that_is_to_stop_needs_no_address() -> None:
    assert dhcp_faults.fault(observed(0, "no device", "x", stopping=True)) is None
