from __future__ import annotations

from dataclasses import replace

import pytest

from tests.cuts import table
from tests.cuts.description import APPLIES, CUTS, OPERATIONS, STEPS, WORST, Expected, cases, chosen, cuts, steps
from tests.cuts.outcomes import Outcome

NAME = "drain.etcd.middle"


def outcome(*faults: str) -> Outcome:
    return Outcome(NAME, "2 Succeeded 20 s; 0.8/1.2", faults, "abc1234", 20.0)


def test_written_table_is_read_back() -> None:
    document = table.written({NAME: outcome()}, {}, "2030-01-02")
    assert table.read(document) == {NAME: "20; 0.8/1.2"}
    assert "Last run 2030-01-02, at abc1234 (1 cases)." in document


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Succeeded (attempt 2) 17 s; 1.5/1.3", "(attempt 2) 17; 1.5/1.3"),
        ("Succeeded, restarted 0 s; 24.3/24.1", "restarted 0; 24.3/24.1"),
        ("1 Succeeded, 1 Failed 9 s; 0.8/1.2", "1 Succeeded, 1 Failed 9; 0.8/1.2"),
    ],
)
def test_a_result_is_shown_unless_all_migrations_succeeded(text: str, shown: str) -> None:
    document = table.written({NAME: replace(outcome(), text=text)}, {}, "d")

    assert table.read(document) == {NAME: shown}


def test_cells_of_which_nothing_is_kept_keep_their_text() -> None:
    document = table.written({}, table.read(table.written({NAME: outcome()}, {}, "d")), "d")
    assert table.read(document)[NAME] == "20; 0.8/1.2"


def test_a_fault_is_in_bold_letters() -> None:
    assert "| 20; 0.8/1.2 **other: restarted; hung** |" in table.written({NAME: outcome("other: restarted", "hung")}, {}, "d")


def test_the_axes_are_those_of_the_description() -> None:
    for operation, (rows, columns) in table.axes(table.written({}, {}, "d")).items():
        if operation in OPERATIONS:
            assert rows == [each.name for each in cuts(operation)]
            assert columns == [each.name for each in steps(operation)]


def test_every_cut_is_made_somewhere_and_every_step_is_met() -> None:
    there = {each.name for each in cases()}
    assert set(APPLIES) == {each.name for each in CUTS}
    assert {(each.step.operation, each.step.name) for each in cases()} == {(each.operation, each.name) for each in STEPS}
    assert len(there) == sum(len(each) for each in APPLIES.values())
    assert there >= set(WORST)


def test_cells_are_chosen_by_words_in_their_names() -> None:
    assert [each.name for each in chosen("drain.etcd")] == ["drain.etcd.first", "drain.etcd.middle", "drain.etcd.last"]
    assert chosen("") == list(cases())
    with pytest.raises(ValueError, match="no case has 'etdc'"):
        chosen("drain etdc")


def test_only_cuts_of_the_guest_itself_may_restart_it() -> None:
    anew = {each.name for each in cases() if each.expected is Expected.RESTARTS}
    assert {each for each in anew if not table.is_loss(each)} == {
        f"migration.{cut}.{step}" for cut in ("launcher-target", "qemu-target", "pod-target") for step in ("assignment", "Succeeded")
    }


def test_a_node_that_reports_keeps_its_guest() -> None:
    expected = {each.name: each.expected for each in cases() if table.is_loss(each.name)}
    restarting = {name for name, each in expected.items() if each is Expected.RESTARTS}
    assert restarting == {"loss.power.no-proof", "loss.all.agent", "loss.all.guardian"}
    for cut in ("from-peers", "from-storage", "etcd-from-api", "established", "handler-stopped", "clock-jumps"):
        assert expected[f"loss.{cut}.agent"] is Expected.STAYS
    assert expected["loss.frozen.no-proof"] is Expected.STAYS
    assert expected["loss.off.agent"] is Expected.ELSEWHERE


def test_runs_of_losses_and_of_other_cases_are_told_apart() -> None:
    lost = Outcome("loss.off.agent", "restarted 70 s; 90.0/95.0", (), "def5678", 70.0)
    document = table.written({NAME: outcome()}, {}, "2030-01-02")
    later = table.written({lost.case: lost}, table.read(document), "2030-02-03", table.runs_of(document))
    assert "Last run 2030-01-02, at abc1234 (1 cases)." in later
    assert "Last run 2030-02-03, at def5678 (1 cases)." in later
    assert table.read(later) == {NAME: "20; 0.8/1.2", lost.case: "restarted 70; 90.0/95.0"}
    assert table.runs_of(later)[True].startswith("Last run 2030-02-03")
