from __future__ import annotations

from typing import Any

import pytest

from apiserver.apis.virt.lifecycle.progress import CONVERGING
from apiserver.kubectl import progress

MIB = 1 << 20
FIGURES = {
    "totalBytes": 256 * MIB,
    "processedBytes": 140 * MIB,
    "remainingBytes": 128 * MIB,
    "bytesPerSecond": 45 * MIB,
    "iteration": 1,
    "expectedRemainingSeconds": 3,
}


def a_migration(phase: str = "Running", *, deleting: bool = False, **status: Any) -> dict[str, Any]:
    metadata = {"name": "web-x7k2p", **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleting else {})}
    return {"metadata": metadata, "status": {"phase": phase, **status}}


@pytest.mark.parametrize(
    ("migration", "expected"),
    [
        ({"metadata": {"name": "m"}}, "Pending"),
        (a_migration("Scheduling", message="pod p: 0/2 nodes are available"), "Scheduling: pod p: 0/2 nodes are available"),
        (a_migration(message="virt-handler is preparing the target"), "Running: virt-handler is preparing the target"),
        (a_migration(progress=FIGURES), "Running: 50% of 256Mi, 45Mi/s, about 3 s left"),
        (a_migration(progress={**FIGURES, "iteration": 4}), "Running: 50% of 256Mi, 45Mi/s, iteration 4, about 3 s left"),
        (
            a_migration(
                progress={**FIGURES, "iteration": 9, "expectedRemainingSeconds": None}, conditions=[{"type": CONVERGING, "status": "False"}]
            ),
            "Running: 50% of 256Mi, 45Mi/s, iteration 9, does not converge",
        ),
        (a_migration(progress=FIGURES, deleting=True), "Running, being cancelled: 50% of 256Mi, 45Mi/s, about 3 s left"),
        (a_migration("Failed", progress=FIGURES, message="no\x1b[2J\nway"), "Failed: no[2J | way"),
        (a_migration("Cancelled", deleting=True), "Cancelled"),
        (a_migration(progress=FIGURES, attempt=1), "Running: 50% of 256Mi, 45Mi/s, about 3 s left"),
        (
            a_migration(progress=FIGURES, attempt=2, attempts=[{"number": 1}]),
            "Running (attempt 2 of 3): 50% of 256Mi, 45Mi/s, about 3 s left",
        ),
        (a_migration(progress=FIGURES, attempt=1, attempts=[{"number": 1}], message="it broke"), "Running: it broke"),
        (a_migration("Pending", attempt=3, message="attempt 2 of 3 failed"), "Pending (attempt 3 of 3): attempt 2 of 3 failed"),
    ],
)
def test_a_line_says_how_far_it_is(migration: dict[str, Any], expected: str) -> None:
    assert progress.line(migration) == expected


def test_a_bar_is_as_wide_as_the_terminal_lets_it_be() -> None:
    found = a_migration(progress=FIGURES)
    assert progress.bar(found, 200) == "Running [############------------] 50% of 256Mi, 45Mi/s, about 3 s left"
    for width in (0, 1, 10, 40):
        assert len(progress.bar(found, width)) <= max(width, 1)
    assert progress.bar(a_migration("Pending", message="m"), 80) == "Pending: m"
    assert progress.bar(a_migration(progress=FIGURES, attempt=1, attempts=[{"number": 1}], message="it broke"), 80) == "Running: it broke"
    assert (
        progress.bar(a_migration("Succeeded", message="the guest moved to node b"), 80)
        == f"Succeeded [{'#' * 24}] the guest moved to node b"
    )


def test_the_end_is_said_whole_and_safe_for_terminals() -> None:
    long = f"{'no node ' * 200}\x1b[2J\nat all"
    assert progress.outcome(a_migration("Failed", message=long)).endswith(f"failed: {'no node ' * 200}[2J | at all")
    assert progress.line(a_migration("Scheduling", message=long)).endswith("…")


def test_an_outcome_says_what_it_took() -> None:
    status: dict[str, Any] = {
        "message": "the guest moved to node b",
        "startTime": "2026-01-01T00:00:00Z",
        "endTime": "2026-01-01T00:00:12Z",
        "progress": {**FIGURES, "processedBytes": 300 * MIB, "downtimeMilliseconds": 45},
    }
    assert progress.outcome(a_migration("Succeeded", **status)) == (
        "the guest moved to node b, it took 12 s, with the guest paused for 45 ms, 300Mi were sent"
    )
    assert progress.outcome(a_migration("Succeeded")) == "the guest moved"
    assert progress.outcome(a_migration("Failed", message="no way")) == "migration web-x7k2p failed: no way"
    assert progress.outcome(a_migration("Cancelled")) == "migration web-x7k2p was cancelled"
