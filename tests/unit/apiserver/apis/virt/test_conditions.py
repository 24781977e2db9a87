from __future__ import annotations

import pytest

from apiserver.apis.virt.lifecycle.conditions import WAITS_FOR_DISKS, Wait, paused, waits_for, was_stopped_by_a_fault


def a_machine(*conditions: tuple[str, str, str]) -> dict[str, object]:
    return {"status": {"conditions": [{"type": kind, "status": status, "reason": reason} for kind, status, reason in conditions]}}


@pytest.mark.parametrize(
    ("kind", "reasons", "wait"),
    [
        ("DisksReady", ("DiskImageNotFound", "ClaimTooSmall", "Importing", "ImportFailed", "DiskServerSilent"), Wait.IMAGE),
        ("DisksReady", ("PluginFailed", "PluginTimedOut", "PluginNotFound"), Wait.IMAGE),
        ("DisksReady", ("SecretNotFound", "ConfigMapNotFound"), Wait.SOURCE),
        ("DisksReady", ("DiskInUse",), Wait.STORAGE),
        ("DisksReady", ("ClaimNotBound",), Wait.VOLUME),
        ("NetworkReady", ("NetworkNotFound", "NetworkNotUsable"), Wait.NETWORK),
        ("NetworkReady", ("PluginFailed", "PluginTimedOut", "PluginNotFound"), Wait.NETWORK_PLUGIN),
    ],
)
def test_a_condition_that_is_false_says_what_a_machine_waits_for(kind: str, reasons: tuple[str, ...], wait: Wait) -> None:
    for reason in reasons:
        assert waits_for(a_machine((kind, "False", reason))) == {wait}
        assert waits_for(a_machine((kind, "True", reason))) == frozenset()
        assert waits_for(a_machine((kind, "Unknown", reason))) == frozenset()
        assert waits_for(a_machine(("Ready", "False", reason))) == frozenset()
        assert (wait in WAITS_FOR_DISKS) is (kind == "DisksReady")


@pytest.mark.parametrize("reason", ["ClaimNotFound", "ClaimIsBlock", "DiskFull", "DiskIOError", "", "None", "NetworkNotFound"])
def test_other_reasons_are_no_wait_of_a_pod(reason: str) -> None:
    assert waits_for(a_machine(("DisksReady", "False", reason))) == frozenset()
    assert waits_for({"status": {"conditions": [{"type": "DisksReady", "status": "False"}]}}) == frozenset()
    assert waits_for({}) == frozenset()


def test_a_machine_may_wait_for_a_disk_and_a_network() -> None:
    vm = a_machine(("DisksReady", "False", "SecretNotFound"), ("NetworkReady", "False", "NetworkNotUsable"))
    assert waits_for(vm) == {Wait.SOURCE, Wait.NETWORK}


@pytest.mark.parametrize(
    ("condition", "fault"),
    [
        (("Paused", "True", "DiskFull"), True),
        (("Paused", "True", "GuestSuspended"), True),
        (("Paused", "True", "User"), False),
        (("Paused", "False", "Running"), False),
        (("Ready", "True", "DiskFull"), False),
    ],
)
def test_guest_paused_without_a_users_pause_has_a_fault(condition: tuple[str, str, str], *, fault: bool) -> None:
    assert was_stopped_by_a_fault([dict(zip(("type", "status", "reason"), condition, strict=True))]) is fault
    assert not was_stopped_by_a_fault(None)


def test_a_pause_is_named_with_its_cause() -> None:
    assert paused("paused on request") == "paused on request"
    assert paused("no space left") == "paused: no space left"
    assert paused("") == "paused"
