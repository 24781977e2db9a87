from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.apis.meta import objects, times
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware.interfaces import MAX_INTERFACES
from apiserver.apis.virt.lifecycle import conditions
from apiserver.apis.virt.v1alpha1 import status_validation
from handler.reconcilers.guests import guest_agent
from launcher.protocol import messages
from tests.unit.handler.reconcilers.builders import a_vm

NOW = datetime(2126, 1, 1, tzinfo=UTC)
OURS = {"name": "default", "mac": "02:00:00:00:00:09", "ipAddress": "10.244.0.5", "ipAddresses": ["10.244.0.5"]}
AGENT = messages.AgentStatus(
    True, hostname="web-1", os_id="debian", os_name="Debian", os_version="12", kernel_release="6.1", timezone="UTC", version="7.2"
)
CARD = messages.InterfaceStatus("default", "02:00:00:00:00:09", "eth0", ("10.0.2.2",))
SEEN = messages.Status(5, started=True, agent=AGENT, interfaces=(CARD, messages.InterfaceStatus("", "", "docker0", ("172.17.0.1",))))


def told(vm: Object, seen: messages.Status, after: float = 0.0) -> tuple[Object, float | None]:
    return guest_agent.with_guest(vm, {**vm["status"]}, seen, NOW + timedelta(seconds=after))


def machine(status: Object | None = None) -> Object:
    return {**a_vm(), "status": status or {"phase": "Running", "interfaces": [OURS]}}


def condition(status: Object) -> tuple[str, str]:
    found = objects.condition(status["conditions"], conditions.AGENT_CONNECTED) or {}
    return found["status"], found["reason"]


def test_agent_answers_are_separate_from_known_status() -> None:
    status, again = told(machine(), SEEN)

    assert again is None
    assert status["guest"] == {
        "agent": {"connected": True, "version": "7.2"},
        "os": {"id": "debian", "name": "Debian", "version": "12", "kernelRelease": "6.1"},
        "hostname": "web-1",
        "timezone": "UTC",
        "interfaces": [{"name": "default", "device": "eth0", "ipAddresses": ["10.0.2.2"]}],
        "time": times.to_rfc3339(NOW),
    }
    assert status["interfaces"] == [OURS]
    assert condition(status) == ("True", "Connected")


def test_guest_without_an_agent_has_only_a_condition() -> None:
    status, again = told(machine(), messages.Status(1, started=True))

    assert (condition(status), again) == (("False", "NotConnected"), None)
    assert "guest" not in status
    assert told(machine(status), messages.Status(1, started=True))[0] == status
    arrived, _ = told(machine(status), SEEN, after=1.0)
    assert (condition(arrived), arrived["guest"]["hostname"]) == (("True", "Connected"), "web-1")


def test_guest_agent_answers_are_written_once_a_minute() -> None:
    status, _ = told(machine(), SEEN)
    other = replace(SEEN, agent=replace(AGENT, hostname="web-2"))

    same, again = told(machine(status), other, after=20.0)
    assert (same, again) == (status, 40.0)
    changed, again = told(machine(status), other, after=60.0)
    assert (changed["guest"]["hostname"], again) == ("web-2", None)
    assert changed["guest"]["time"] == times.to_rfc3339(NOW + timedelta(seconds=60))
    assert told(machine(status), SEEN, after=90.0) == (status, None)


def test_a_clock_that_was_set_back_does_not_silence_a_guest() -> None:
    status, _ = told(machine(), SEEN, after=3600.0)
    assert told(machine(status), replace(SEEN, agent=replace(AGENT, hostname="web-2")))[0]["guest"]["hostname"] == "web-2"


@pytest.mark.parametrize("seen", [messages.AgentStatus(connected=True, problem="timed out"), replace(AGENT, problem="timed out")])
def test_an_agent_that_does_not_answer_is_told_with_its_reason(seen: messages.AgentStatus) -> None:
    status, _ = told(machine(), replace(SEEN, agent=seen))

    assert condition(status) == ("False", "NotAnswering")
    found = objects.condition(status["conditions"], conditions.AGENT_CONNECTED) or {}
    assert found["message"] == "the QEMU guest agent does not answer: timed out"
    assert status["guest"]["agent"]["connected"] is True


def test_a_channel_that_opens_and_closes_writes_once_a_minute() -> None:
    open_, closed = (replace(SEEN, agent=messages.AgentStatus(connected=each, problem="p" if each else "")) for each in (True, False))
    vm, writes = machine(), 0
    for second in range(120):
        status, _ = told(vm, (open_, closed)[second % 2], after=float(second))
        writes += status != vm["status"]
        vm = machine(status)
    assert writes <= 3


def test_agent_answers_stay_when_it_disconnects() -> None:
    status, _ = told(machine(), SEEN)
    for agent in (replace(AGENT, connected=False), messages.AgentStatus()):
        gone, _ = told(machine(status), replace(SEEN, agent=agent), after=100.0)
        assert condition(gone) == ("False", "NotConnected")
        assert gone["guest"]["agent"] == {"connected": False, "version": "7.2"}
        assert gone["guest"]["hostname"] == "web-1"


def test_a_guest_that_has_just_moved_keeps_what_it_said() -> None:
    status, _ = told(machine(), SEEN)
    moved = messages.MigrationStatus("m", "incoming", "succeeded", end_time=NOW.timestamp() + 100.0)
    seen = messages.Status(1, started=True, migrations=(moved,))

    assert told(machine(status), seen, after=110.0) == (status, guest_agent.WRITE_SECONDS)
    assert condition(told(machine(status), seen, after=170.0)[0]) == ("False", "NotConnected")


def test_a_guest_that_shuts_down_has_nothing_new_to_say() -> None:
    vm = machine()
    assert told(vm, replace(SEEN, stopping=True)) == (vm["status"], None)


def test_few_of_many_interfaces_and_addresses_are_told() -> None:
    addresses = tuple(f"10.0.2.{each}" for each in range(guest_agent.MAX_ADDRESSES + 1))
    cards = [messages.InterfaceStatus(f"net{each}", "", f"eth{each}", addresses) for each in range(MAX_INTERFACES + 1)]
    vm = machine({"phase": "Running", "interfaces": [{**OURS, "name": each.name} for each in cards]})

    found = told(vm, replace(SEEN, interfaces=tuple(cards)))[0]["guest"]["interfaces"]
    assert [each["name"] for each in found] == [each.name for each in cards[:-1]]
    assert [each["ipAddresses"] for each in found] == [list(addresses[:-1])] * MAX_INTERFACES


def test_interface_without_details_is_listed_by_name() -> None:
    cards = (messages.InterfaceStatus("default", "", "", ("x",)), messages.InterfaceStatus("other", "", "eth1"))
    assert told(machine(), replace(SEEN, interfaces=cards))[0]["guest"]["interfaces"] == [{"name": "default"}]


@pytest.mark.parametrize(
    ("agent", "message"),
    [
        (messages.AgentStatus(), "no QEMU guest agent is connected"),
        (messages.AgentStatus(problem="x"), "no QEMU guest agent is connected"),
        (replace(AGENT, problem="a\nb" + "x" * 999), "the QEMU guest agent does not answer: a | b"),
        (AGENT, ""),
    ],
)
def test_the_condition_says_in_one_line_what_is_wrong(agent: messages.AgentStatus, message: str) -> None:
    status, _ = told(machine(), replace(SEEN, agent=agent))
    found = objects.condition(status["conditions"], conditions.AGENT_CONNECTED) or {}
    assert found["message"].rstrip("x…. ").startswith(message)
    assert ("\n" in found["message"], len(found["message"]) <= 38 + guest_agent.MAX_PROBLEM) == (False, True)
    assert found["observedGeneration"] == (machine()["metadata"].get("generation") or 0)


def test_invalid_guest_time_is_written_again() -> None:
    status, _ = told(machine(), SEEN)
    status = {**status, "guest": {**status["guest"], "time": "yesterday"}}
    changed, again = told(machine(status), replace(SEEN, agent=replace(AGENT, hostname="web-2")))
    assert (changed["guest"]["hostname"], changed["guest"]["time"], again) == ("web-2", times.to_rfc3339(NOW), None)


def test_only_an_arrival_of_the_last_minute_keeps_what_was_said() -> None:
    status, _ = told(machine(), SEEN)
    direction: Any
    for direction, ago, kept in (("incoming", 59.0, True), ("incoming", 60.0, False), ("outgoing", 1.0, False)):
        moved = messages.MigrationStatus("m", direction, "succeeded", end_time=NOW.timestamp() + 100.0 - ago)
        found, _ = told(machine(status), messages.Status(1, started=True, migrations=(moved,)), after=100.0)
        assert (found == status) is kept
    moved = messages.MigrationStatus("m", "incoming", "succeeded", end_time=NOW.timestamp() + 99.0)
    fresh, _ = told(machine(), messages.Status(1, started=True, migrations=(moved,)), after=100.0)
    assert condition(fresh) == ("False", "NotConnected")


ANY = st.text(max_size=400)


@given(
    st.builds(
        messages.AgentStatus,
        connected=st.booleans(),
        hostname=ANY,
        os_id=ANY,
        os_name=ANY,
        os_version=ANY,
        kernel_release=ANY,
        timezone=ANY,
        version=ANY,
        problem=ANY,
    ),
    st.lists(
        st.builds(
            messages.InterfaceStatus,
            st.sampled_from(["default", "", "x" * 99]),
            ANY,
            ANY,
            st.lists(st.sampled_from(["10.0.0.1", "fe80::1%eth0", "x"]) | ANY, max_size=99).map(tuple),
        ),
        max_size=99,
    ),
)
def test_any_launcher_status_gives_a_valid_guest_status(agent: messages.AgentStatus, interfaces: list[Any]) -> None:
    vm = machine()
    status, _ = told(vm, messages.Status(1, agent=agent, interfaces=tuple(interfaces)))
    assert status_validation.validate_virtual_machine_status({**vm, "status": status}, vm) == []
