"""Probes of a node's guests on a virtual clock: their times, and one probe's effects on others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from apiserver.apis.virt.spec.probes import Probe
from handler.pods.links import Link
from handler.probes import prober
from handler.probes.prober import NO_ADDRESS, NO_PORT, Prober
from handler.probes.tally import Outcome, Verdict
from handler.reconcilers.guests import guest_plan
from launcher.protocol import messages
from tests.unit.controller.virtualtime import run
from tests.unit.handler.reconcilers.builders import a_migrating, a_running, a_vm

GOOD, BAD = Outcome(succeeded=True), Outcome(succeeded=False, message="bad")
NOW = datetime(2026, 11, 21, 8, 0, 0, tzinfo=UTC)


class Noon:
    def now(self) -> datetime:
        return NOW


@dataclass
class Guests:
    answer: Outcome | Exception = GOOD
    answers: dict[str, Outcome | Exception] = field(default_factory=dict)
    asked: list[tuple[float, str, int]] = field(default_factory=list)
    changed: list[tuple[float, str]] = field(default_factory=list)
    seconds: float = 0.0
    meanwhile: Callable[[], None] = lambda: None

    def prober(self) -> Prober:
        return Prober(self._question, Noon(), may_be_asked=guest_plan.may_be_asked, changed=self._changed)

    def times(self) -> list[float]:
        return [time for time, _, _ in self.asked]

    def _question(self, probe: Probe, address: str) -> Question:
        return Question(self, probe, address)

    def _changed(self, link: Link) -> None:
        self.changed.append((asyncio.get_running_loop().time(), link.pod_uid))


@dataclass
class Question:
    guests: Guests
    probe: Probe
    address: str

    async def ask(self, link: Link) -> Outcome:
        self.guests.asked.append((asyncio.get_running_loop().time(), self.address, self.probe.port))
        await asyncio.sleep(self.guests.seconds)
        self.guests.meanwhile()
        answer = self.guests.answers.get(self.address, self.guests.answer)
        if isinstance(answer, Exception):
            raise answer
        return answer


def a_link(status: messages.Status | None = None, pod_uid: str = "8c9c3b0e-0000-4000-8000-000000000001") -> Link:
    link = Link(pod_uid, 0.0)
    link.status = status or a_running()
    return link


def probed(running: str = "", **numbers: int) -> dict[str, Any]:
    vm = a_vm("Running")
    vm["spec"]["readinessProbe"] = {"tcpSocket": {"port": 80}, **numbers}
    if running:
        vm["status"]["attempts"][0]["runningTime"] = running
    return vm


def play(asker: Prober, scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def scene() -> None:
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(asker.run())
            await scenario()
            assert not running.done()
            running.cancel()

    run(scene())


def test_a_new_reason_is_told_as_a_new_verdict_is() -> None:
    guests, link = Guests(answer=BAD), a_link()
    asker = guests.prober()

    async def scene() -> None:
        vm = probed(periodSeconds=5, failureThreshold=1)
        asker.verdict(vm, link, "10.0.0.1")
        await asyncio.sleep(8)
        guests.answer = Outcome(succeeded=False, message="refused")
        await asyncio.sleep(8)
        assert asker.verdict(vm, link, "10.0.0.1") == Verdict(ready=False, message="refused")

    play(asker, scene)
    assert guests.changed == [(0.0, link.pod_uid), (10.0, link.pod_uid)]


def test_guest_is_probed_every_period_after_the_initial_delay() -> None:
    guests, link = Guests(), a_link()
    asker = guests.prober()

    async def scene() -> None:
        vm = probed(initialDelaySeconds=7, periodSeconds=5)
        assert asker.verdict(vm, link, "10.0.0.1") == Verdict()
        await asyncio.sleep(18)
        assert asker.verdict(vm, link, "10.0.0.1") == Verdict(ready=True)

    play(asker, scene)
    assert guests.asked == [(7.0, "10.0.0.1", 80), (12.0, "10.0.0.1", 80), (17.0, "10.0.0.1", 80)]
    assert guests.changed == [(7.0, link.pod_uid)]


@pytest.mark.parametrize(
    ("running", "first"),
    [
        ("2026-11-21T07:59:53Z", 53.0),
        ("2026-11-21T07:00:00Z", 0.0),
        ("2026-11-21T09:00:00Z", 60.0),
        ("9999-12-31T23:59:59Z", 60.0),
        ("0001-01-01T00:00:00Z", 0.0),
    ],
)
def test_initial_delay_counts_from_the_guests_start(running: str, first: float) -> None:
    guests = Guests()
    asker = guests.prober()

    async def scene() -> None:
        asker.verdict(probed(running, initialDelaySeconds=60), a_link(), "10.0.0.1")
        await asyncio.sleep(61)

    play(asker, scene)
    assert guests.times()[0] == first


@pytest.mark.parametrize(
    "quiet",
    [a_running("paused", "I/O error"), a_migrating("running"), a_running(stopping=True)],
    ids=["paused", "moves", "shuts down"],
)
def test_guest_that_cannot_answer_is_not_probed_and_count_resets(quiet: messages.Status) -> None:
    guests, link = Guests(answer=BAD), a_link()
    asker, vm = guests.prober(), probed(periodSeconds=1, failureThreshold=2)

    async def scene() -> None:
        asker.verdict(vm, link, "10.0.0.1")
        await asyncio.sleep(0.5)
        link.status = quiet
        await asyncio.sleep(100)
        assert guests.times() == [0.0]
        link.status = a_running()
        await asyncio.sleep(1)
        assert asker.verdict(vm, link, "10.0.0.1") == Verdict()
        await asyncio.sleep(1)
        assert asker.verdict(vm, link, "10.0.0.1") == Verdict(ready=False, message="bad")

    play(asker, scene)
    assert guests.times() == [0.0, 101.0, 102.0]


def test_an_answer_that_comes_while_the_guest_stops_is_none() -> None:
    guests, link = Guests(answer=BAD), a_link()
    asker, vm = guests.prober(), probed(periodSeconds=1, failureThreshold=1)

    def stops() -> None:
        link.status = a_running("paused", "user")

    guests.meanwhile = stops

    async def scene() -> None:
        asker.verdict(vm, link, "10.0.0.1")
        await asyncio.sleep(10)
        assert asker.verdict(vm, link, "10.0.0.1") == Verdict()

    play(asker, scene)
    assert (guests.times(), guests.changed) == ([0.0], [])


def test_ended_launcher_is_not_probed() -> None:
    guests, link = Guests(), a_link()
    asker = guests.prober()
    link.gone = True

    async def scene() -> None:
        asker.verdict(probed(), link, "10.0.0.1")
        await asyncio.sleep(100)

    play(asker, scene)
    assert guests.asked == []


def test_edited_probe_restarts_and_a_removed_one_stops() -> None:
    guests, link = Guests(answer=BAD), a_link()
    asker = guests.prober()

    async def scene() -> None:
        edited, gone = probed(periodSeconds=1, failureThreshold=1), a_vm("Running")
        asker.verdict(edited, link, "10.0.0.1")
        await asyncio.sleep(0.5)
        assert asker.verdict(edited, link, "10.0.0.1").ready is False
        edited["spec"]["readinessProbe"]["tcpSocket"] = {"port": 81}
        assert asker.verdict(edited, link, "10.0.0.1") == Verdict()
        await asyncio.sleep(1.5)
        assert asker.verdict(gone, link, "10.0.0.1") == Verdict()
        await asyncio.sleep(100)

    play(asker, scene)
    assert [(time, port) for time, _, port in guests.asked] == [(0.0, 80), (0.5, 81), (1.5, 81)]


def test_gone_pods_and_replaced_links_are_not_probed() -> None:
    guests, first, second = Guests(), a_link(), a_link()
    asker, vm = guests.prober(), probed(periodSeconds=1)

    async def scene() -> None:
        asker.verdict(vm, first, "10.0.0.1")
        await asyncio.sleep(0.5)
        asker.verdict(vm, second, "10.0.0.1")
        await asyncio.sleep(1)
        asker.forget(lambda uid: uid == first.pod_uid)
        await asyncio.sleep(1)
        asker.forget(lambda _: False)
        await asyncio.sleep(100)

    play(asker, scene)
    assert guests.times() == [0.0, 0.5, 1.5]


def test_pod_gone_before_the_first_probe_is_never_probed() -> None:
    guests, link = Guests(), a_link()
    asker = guests.prober()

    async def scene() -> None:
        asker.verdict(probed(periodSeconds=1), link, "10.0.0.1")
        asker.forget(lambda _: False)
        await asyncio.sleep(10)

    play(asker, scene)
    assert guests.asked == []


def test_verdict_explains_why_no_probe_is_possible() -> None:
    guests, link = Guests(), a_link()
    asker, vm = guests.prober(), probed(periodSeconds=1)
    wrong = probed()
    wrong["spec"]["readinessProbe"]["tcpSocket"] = {"port": 70_000}

    async def scene() -> None:
        assert asker.verdict(vm, link, None) == Verdict()
        assert asker.verdict(vm, link, "") == Verdict(message=NO_ADDRESS)
        assert asker.verdict(wrong, link, "10.0.0.1") == Verdict(message=NO_PORT)
        await asyncio.sleep(100)
        assert guests.asked == []
        assert asker.verdict(vm, link, "10.0.0.1") == Verdict()
        await asyncio.sleep(0.5)
        assert asker.verdict(vm, link, "10.0.0.1") == Verdict(ready=True)
        assert asker.verdict(vm, link, "") == Verdict(message=NO_ADDRESS)

    play(asker, scene)


def test_an_agent_needs_no_address() -> None:
    guests, link = Guests(), a_link()
    asker, vm = guests.prober(), a_vm("Running")
    vm["spec"]["livenessProbe"] = {"guestAgentPing": {}}

    async def scene() -> None:
        for address in ("", None, "10.0.0.1"):
            asker.verdict(vm, link, address)
            await asyncio.sleep(1)

    play(asker, scene)
    assert guests.asked == [(0.0, "", 0)]


def test_only_a_failing_liveness_probe_reports_a_dead_guest() -> None:
    guests, link = Guests(), a_link()
    asker, vm = guests.prober(), a_vm("Running")
    vm["spec"]["livenessProbe"] = {"tcpSocket": {"port": 22}, "periodSeconds": 1, "failureThreshold": 1}

    async def scene() -> None:
        asker.verdict(vm, link, "10.0.0.1")
        await asyncio.sleep(0.5)
        assert asker.verdict(vm, link, "10.0.0.1") == Verdict()
        guests.answer = BAD
        await asyncio.sleep(1)
        assert asker.verdict(vm, link, "10.0.0.1") == Verdict(dead="bad")
        assert asker.verdict(vm, link, "") == Verdict()

    play(asker, scene)


def test_error_of_one_probe_ends_no_other_and_is_retried(caplog: pytest.LogCaptureFixture) -> None:
    guests = Guests(answers={"10.0.0.1": OverflowError("connect(): port must be 0-65535.")})
    one, other = a_link(), a_link(pod_uid="8c9c3b0e-0000-4000-8000-000000000002")
    asker, vm = guests.prober(), probed(periodSeconds=1)

    async def scene() -> None:
        asker.verdict(vm, one, "10.0.0.1")
        asker.verdict(vm, other, "10.0.0.2")
        await asyncio.sleep(prober.FAULT_SECONDS + 0.5)
        assert asker.verdict(vm, one, "10.0.0.1") == Verdict()
        assert asker.verdict(vm, other, "10.0.0.2") == Verdict(ready=True)

    play(asker, scene)
    assert [time for time, address, _ in guests.asked if address == "10.0.0.1"] == [0.0, prober.FAULT_SECONDS]
    assert len([time for time, address, _ in guests.asked if address == "10.0.0.2"]) == prober.FAULT_SECONDS + 1
    assert one.pod_uid in caplog.text
    assert other.pod_uid not in caplog.text


def test_stored_probe_cannot_make_virt_handler_probe_nonstop() -> None:
    guests = Guests()
    asker, vm = guests.prober(), probed(periodSeconds=0, timeoutSeconds=-1, initialDelaySeconds=-5)

    async def scene() -> None:
        asker.verdict(vm, a_link(), "10.0.0.1")
        await asyncio.sleep(2.5)

    play(asker, scene)
    assert guests.times() == [0.0, 1.0, 2.0]


def test_probe_longer_than_a_period_is_followed_at_once() -> None:
    guests, link = Guests(), a_link()
    asker, vm = guests.prober(), probed(periodSeconds=1)
    guests.seconds = 2.5

    async def scene() -> None:
        asker.verdict(vm, link, "10.0.0.1")
        await asyncio.sleep(6)

    play(asker, scene)
    assert guests.times() == [0.0, 2.5, 5.0]
