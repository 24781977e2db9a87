from __future__ import annotations

import pytest

from handler.devices import acceleration, kvm, trial

GOOD = "stage C 0.0001\nstage P 0.0002\nstage I 0.0003\nstage X 0.0004\nstage L 0.0154\nend done\n"


def test_guest_that_finished_in_time_is_accelerated() -> None:
    verdict = acceleration.verdict_of(GOOD, ended=True)

    assert verdict.accelerated
    assert verdict.accelerator == "kvm"


@pytest.mark.parametrize(
    ("report", "ended", "reason"),
    [
        ("", True, "lock cmpxchg16b: it stopped"),
        ("", False, "lock cmpxchg16b: no progress for 10 s"),
        ("end Permission denied (/dev/kvm)\n", True, "Permission denied"),
        ("stage C 0.1\nstage P 0.1\nend KVM internal error 1 at the instruction cc\n", True, "int3): KVM internal error 1"),
        ("stage C 0.1\nstage P 0.1\nstage I 0.1\nstage X 0.2\n", False, "a loop of forty million instructions: no progress"),
        (GOOD.replace("0.0154", "3.5"), True, "3.5 s for a loop"),
        ("stage C 0.1\nstage P 0.1\nstage ! 0.1\nend done\n", True, "the result was wrong"),
    ],
    ids=["silent", "hung", "refused", "instruction missing", "too slow to end", "slow", "wrong result"],
)
def test_anything_less_is_emulation_with_a_reason(report: str, ended: bool, reason: str) -> None:
    verdict = acceleration.verdict_of(report, ended=ended)

    assert not verdict.accelerated
    assert reason in verdict.reason


@pytest.mark.parametrize(("choice", "accelerated"), [("kvm", True), ("emulation", False)])
async def test_an_administrator_can_force_either_answer(choice: acceleration.Choice, accelerated: bool) -> None:
    verdict = await acceleration.decide(choice, acceleration.Trials())

    assert verdict.accelerated is accelerated
    assert choice in verdict.reason


def test_processor_starts_in_long_mode_with_the_guests_tables() -> None:
    sregs = bytearray(312)
    kvm.long_mode(sregs)

    base = int.from_bytes(sregs[192:200], "little")
    assert base == trial.GDT
    assert sregs[12:14] == trial.CODE_SELECTOR.to_bytes(2, "little")
    assert int.from_bytes(sregs[240:248], "little") == trial.PML4  # cr3
    assert int.from_bytes(sregs[264:272], "little") == 0x500  # efer


def test_every_stage_of_the_guests_program_reports_once() -> None:
    program = bytes(trial.memory()[trial.CODE : trial.CODE + 256])

    for stage in (*trial.STAGES, trial.FAILED):
        assert program.count(bytes((0xB0, ord(stage), 0xE6, trial.PORT))) == 1
