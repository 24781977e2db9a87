from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from handler.devices import acceleration, detection
from handler.devices.acceleration import Verdict
from handler.devices.detection import Detection, Observed
from handler.metrics.process import Metrics
from tests.unit.controller import virtualtime

DEVICE = (7, 2792, 0o20660, 0, 104)
SAME = Observed(accelerated=False, device=DEVICE, tried=DEVICE, trials=1, elapsed=14.9, hangs=False)
GOOD = "stage C 0.0001\nstage P 0.0002\nstage I 0.0003\nstage X 0.0004\nstage L 0.0154\nend done\n"
REFUSED = "end Permission denied (/dev/kvm)\n"


@pytest.mark.parametrize(
    ("observed", "due"),
    [
        (replace(SAME, device=None, tried=None, elapsed=1e9), False),
        (replace(SAME, tried=None, elapsed=0.0), True),
        (replace(SAME, tried=(7, 2792, 0o20600, 0, 0), elapsed=0.0), True),
        (replace(SAME, accelerated=True, tried=None, elapsed=1e9), False),
        (replace(SAME, hangs=True, tried=None, elapsed=1e9), False),
        (SAME, False),
        (replace(SAME, elapsed=15.0), True),
        (replace(SAME, trials=3, elapsed=59.9), False),
        (replace(SAME, trials=3, elapsed=60.0), True),
        (replace(SAME, trials=10_000, elapsed=599.9), False),
        (replace(SAME, trials=10_000, elapsed=600.0), True),
    ],
    ids=["absent", "appeared", "changed", "accelerated", "hangs", "soon", "first pause", "third", "third over", "longest", "longest over"],
)
def test_a_device_is_tried_when_it_changed_and_after_pauses(observed: Observed, due: bool) -> None:
    assert detection.is_due(observed) is due


class Trials(acceleration.Trials):
    def __init__(self, *reports: str) -> None:
        super().__init__()
        self._reports = list(reports)
        self.at: list[float] = []

    async def run(self) -> tuple[str, bool]:
        self.at.append(asyncio.get_running_loop().time())
        return self._reports.pop(0) if len(self._reports) > 1 else self._reports[0], True


def test_verdict_changes_with_the_device_and_probing_stops(tmp_path: Path) -> None:
    device, verdicts = tmp_path / "kvm", list[Verdict]()

    async def scenario() -> Trials:
        trials = Trials("end No such file or directory (/dev/kvm)\n", REFUSED, GOOD)
        detector = Detection("auto", trials=trials, device=device)
        detector.subscribe(verdicts.append)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(detector.run())
            await asyncio.sleep(3601)
            assert len(trials.at) == 1
            device.touch()
            await asyncio.sleep(detection.POLL_SECONDS + 1)
            assert len(trials.at) == 2
            await asyncio.sleep(600)
            assert running.done()
        assert detector.verdict.accelerator == "kvm"
        return trials

    trials = virtualtime.run(scenario())
    assert [each.accelerated for each in verdicts] == [False, False, True]
    assert 0 < trials.at[1] - 3601 <= detection.POLL_SECONDS
    assert detection.FIRST_SECONDS <= trials.at[2] - trials.at[1] < detection.FIRST_SECONDS + detection.POLL_SECONDS
    assert len(trials.at) == 3


def test_a_device_that_never_works_is_tried_seldom(tmp_path: Path) -> None:
    device = tmp_path / "kvm"
    device.touch()

    async def scenario() -> int:
        trials = Trials(REFUSED)
        detector = Detection("auto", trials=trials, device=device)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(detector.run())
            await asyncio.sleep(24 * 3600)
            running.cancel()
        return len(trials.at)

    assert 100 < virtualtime.run(scenario()) < 24 * 6 + 10


@pytest.mark.parametrize("choice", ["kvm", "emulation"])
def test_forced_choice_is_not_probed(tmp_path: Path, choice: acceleration.Choice) -> None:
    async def scenario() -> Trials:
        trials = Trials(GOOD)
        detector = Detection(choice, trials=trials, device=tmp_path)
        await detector.run()
        assert detector.verdict.accelerated is (choice == "kvm")
        return trials

    assert virtualtime.run(scenario()).at == []


def test_the_figure_of_an_earlier_verdict_goes() -> None:
    metrics = Metrics()
    metrics.verdict(Verdict(accelerated=False, reason="too early"))
    metrics.verdict(Verdict(accelerated=True, reason="a guest ran"))

    lines = [line for line in metrics.text().decode().splitlines() if line.startswith("kubevirt_node_acceleration")]
    assert lines == ['kubevirt_node_acceleration{reason="a guest ran"} 1']
