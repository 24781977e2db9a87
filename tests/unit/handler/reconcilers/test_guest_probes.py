from __future__ import annotations

from typing import Any

import pytest

from apiserver.apis.meta.objects import condition
from apiserver.apis.virt.lifecycle import phases
from handler.probes.tally import Verdict
from handler.reconcilers.guests import guest_probes, guest_status
from handler.reconcilers.guests.guest_probes import CANNOT_ASK, NOT_YET
from tests.unit.handler.reconcilers.builders import NOW, a_running, a_vm

BAD = Verdict(ready=False, message="GET / at port 80: HTTP status 503")
NOBODY = Verdict(message="no address")
READY = {"type": "Ready", "status": "True", "reason": "GuestRunning", "message": ""}
NOT_READY = {"type": "Ready", "status": "False", "reason": "ReadinessProbeFailed", "message": "as before"}
UNASKED = {"type": "Ready", "status": "False", "reason": "ReadinessProbeFailed", "message": f"{CANNOT_ASK}no address"}
PAUSED = {"type": "Ready", "status": "False", "reason": "Paused", "message": "paused"}


def a_probed(*known: dict[str, Any]) -> dict[str, Any]:
    vm = a_vm("Running", conditions=list(known))
    vm["spec"]["readinessProbe"] = {"httpGet": {"port": 80}}
    return vm


def ready(vm: dict[str, Any], verdict: Verdict, state: Any = "running") -> tuple[str, str, str]:
    status = guest_status.running(vm, a_running(state, "user"), None, NOW, verdict)
    found = condition(status["conditions"], "Ready") or {}
    return found["status"], found["reason"], found["message"]


@pytest.mark.parametrize(
    ("known", "verdict", "wanted"),
    [
        ((), Verdict(), ("False", "ReadinessProbeFailed", NOT_YET)),
        ((PAUSED,), Verdict(), ("True", "GuestRunning", "the guest runs")),
        ((NOT_READY,), Verdict(), ("False", "ReadinessProbeFailed", "as before")),
        ((READY,), Verdict(), ("True", "GuestRunning", "the guest runs")),
        ((READY,), BAD, ("False", "ReadinessProbeFailed", "the readiness probe fails: GET / at port 80: HTTP status 503")),
        ((NOT_READY,), Verdict(ready=True), ("True", "GuestRunning", "the guest runs")),
        ((PAUSED,), Verdict(ready=True), ("True", "GuestRunning", "the guest runs")),
        ((), NOBODY, ("False", "ReadinessProbeFailed", f"{CANNOT_ASK}no address")),
        ((READY,), NOBODY, ("False", "ReadinessProbeFailed", f"{CANNOT_ASK}no address")),
        ((UNASKED,), Verdict(), ("False", "ReadinessProbeFailed", NOT_YET)),
    ],
)
def test_a_guest_is_ready_once_its_probe_says_so(known: tuple[dict[str, Any], ...], verdict: Verdict, wanted: tuple[str, str, str]) -> None:
    assert ready(a_probed(*known), verdict) == wanted


def test_a_paused_guest_is_as_ready_as_before_once_it_runs_on() -> None:
    """Also if virt-handler has only the status: the guest was paused to move to another node."""
    for known, reason in ((READY, "Paused"), (NOT_READY, "ReadinessProbeFailed"), (PAUSED, "Paused")):
        vm = a_probed(known)
        vm["status"] = guest_status.running(vm, a_running("paused", "migration"), None, NOW, Verdict())
        assert (condition(vm["status"]["conditions"], "Ready") or {})["reason"] == reason
        assert ready(vm, Verdict())[0] == ("False" if known is NOT_READY else "True")
    assert ready(a_probed(READY), BAD, "paused")[1] == "ReadinessProbeFailed"


def test_machine_without_a_probe_is_ready_when_its_guest_runs() -> None:
    assert ready(a_vm("Running"), BAD)[0] == "True"


def test_unchanged_status_is_not_written_again() -> None:
    vm = a_probed()
    vm["status"] = guest_status.running(vm, a_running(), None, NOW, BAD)
    assert guest_status.running(vm, a_running(), None, NOW.replace(hour=9), BAD) == vm["status"]
    assert guest_status.running(vm, a_running(), None, NOW.replace(hour=9), Verdict()) == vm["status"]


def test_guest_failing_liveness_is_stopping_with_its_reason() -> None:
    vm = a_probed(READY)
    status = guest_probes.ending(vm, vm["status"], Verdict(dead="connection to port 22: Connection refused"), NOW)
    found = condition(status["conditions"], "Ready") or {}
    assert status["phase"] == phases.STOPPING
    assert (found["status"], found["reason"]) == ("False", "LivenessProbeFailed")
    assert found["message"] == "the liveness probe failed: connection to port 22: Connection refused"
    assert found["observedGeneration"] == vm["metadata"]["generation"]
    del vm["metadata"]["generation"]
    (unnumbered,) = guest_probes.ending(vm, {"conditions": []}, Verdict(dead="x"), NOW)["conditions"]
    assert unnumbered["observedGeneration"] == 0


def test_only_what_was_ready_becomes_unready() -> None:
    after = {"conditions": [NOT_READY]}
    assert guest_probes.became_unready(a_probed(READY), after) == "as before"
    assert guest_probes.became_unready(a_probed(NOT_READY), after) == ""
    assert guest_probes.became_unready(a_probed(READY), {"conditions": [PAUSED]}) == ""


def test_words_of_the_guest_are_one_bounded_line() -> None:
    told = guest_probes.unready(a_probed(), Verdict(ready=False, message="a\nb\x1b[31m" + "c" * 5000))
    assert told.isprintable()
    assert len(told) <= guest_probes.MAX_MESSAGE
