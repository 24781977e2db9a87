from __future__ import annotations

from typing import Any

from handler.reconcilers.guests import passt_faults
from handler.reconcilers.guests.guest_status import NetworkFault
from launcher.protocol.messages import Status

AWAY = Status(1, passt_ends=1, passt_problem="passt ended with -9")


def a_vm(**interface: Any) -> dict[str, Any]:
    return {"spec": {"domain": {"devices": {"interfaces": [{"name": "lan", **interface}]}}}}


def test_missing_passt_is_a_network_fault() -> None:
    vm = a_vm(type="passt", ports=[])
    assert passt_faults.fault(vm, AWAY) == NetworkFault("NetworkNotReady", "interface lan: passt ended with -9; restarting it")
    assert passt_faults.fault(vm, Status(1, passt_ends=1)) is None


def test_passt_faults_of_other_or_ending_guests_are_ignored() -> None:
    assert passt_faults.fault(a_vm(), AWAY) is None
    assert passt_faults.fault(a_vm(type="passt", ports=[]), Status(1, stopping=True, passt_problem="x")) is None
