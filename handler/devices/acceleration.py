"""Decide whether guests on this node can use KVM, by running one, unless an administrator forces the result."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from dataclasses import dataclass
from typing import Final, Literal

from handler.devices import trial

logger = logging.getLogger(__name__)

Choice = Literal["auto", "kvm", "emulation"]
TRIAL_SECONDS: Final = 10.0
"""Working KVM takes well under a second, including the interpreter's start."""
LOOP_SECONDS: Final = 1.0
"""The loop takes 10 ms on hardware, 100 ms in a nested machine under load, and 20 s if each instruction is emulated."""
_REPORT_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether guests on this node are accelerated, and why."""

    accelerated: bool
    reason: str

    @property
    def accelerator(self) -> Literal["kvm", "qemu"]:
        """The domain type of libvirt for this verdict."""
        return "kvm" if self.accelerated else "qemu"


def verdict_of(report: str, *, ended: bool) -> Verdict:
    """Return the Verdict on a trial guest's output; ``ended`` is false if the trial was killed."""
    stages: dict[str, float] = {}
    reason = ""
    for line in report.splitlines():
        words = line.split(" ", 2)
        if len(words) == 3 and words[0] == "stage":
            stages[words[1]] = float(words[2])
        elif words[0] == "end":
            reason = line.removeprefix("end ")
    missing = next((what for stage, what in trial.STAGES.items() if stage not in stages), None)
    if trial.FAILED in stages:
        return Verdict(accelerated=False, reason=f"a trial guest failed at {missing}: the result was wrong")
    if missing is not None:
        why = reason if ended and reason and reason != "done" else f"no progress for {TRIAL_SECONDS:.0f} s" if not ended else "it stopped"
        return Verdict(accelerated=False, reason=f"a trial guest failed at {missing}: {why}")
    loop = stages["L"] - stages["X"]
    if loop > LOOP_SECONDS:
        return Verdict(
            accelerated=False, reason=f"a trial guest needed {loop:.1f} s for a loop that takes about 0.01 s with hardware virtualization"
        )
    return Verdict(accelerated=True, reason=f"a trial guest succeeded in {stages['L']:.3f} s")


class Trials:
    """Runs trial guests in a child process, one at a time."""

    def __init__(self) -> None:
        self._child: asyncio.subprocess.Process | None = None

    @property
    def hangs(self) -> bool:
        """True while the last trial's process has not ended."""
        return self._child is not None and self._child.returncode is None

    async def run(self) -> tuple[str, bool]:
        """Run a trial guest; return its output, and False if it was killed after ``TRIAL_SECONDS``. Raises OSError."""
        self._child = child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "handler.devices.kvm", stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
        )
        assert child.stdout is not None  # noqa: S101 - asked for above
        report = b""
        try:
            async with asyncio.timeout(TRIAL_SECONDS):
                while len(report) < _REPORT_BYTES and (data := await child.stdout.read(_REPORT_BYTES)):
                    report += data
                await child.wait()
                return report.decode(errors="replace"), True
        except TimeoutError:
            return report.decode(errors="replace"), False
        finally:
            if child.returncode is None:
                child.kill()
                # a process that hangs in the kernel may never die
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(1):
                        await child.wait()


async def decide(choice: Choice, trials: Trials) -> Verdict:
    """Return and log whether guests are accelerated here, and why; only ``auto`` runs a trial."""
    verdict = Verdict(accelerated=False, reason="")
    match choice:
        case "kvm":
            verdict = Verdict(accelerated=True, reason="forced by --acceleration=kvm")
        case "emulation":
            verdict = Verdict(accelerated=False, reason="forced by --acceleration=emulation")
        case "auto":
            try:
                report, ended = await trials.run()
            except OSError as error:
                verdict = Verdict(accelerated=False, reason=f"cannot start the trial guest: {error}")
            else:
                verdict = verdict_of(report, ended=ended)
    logger.info("guests are accelerated: %s: %s", verdict.accelerated, verdict.reason)
    return verdict
