"""Compares a probe's results with its thresholds. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from apiserver.apis.virt.spec.probes import Probe


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of one probe; ``succeeded`` is None if the guest could not be asked."""

    succeeded: bool | None
    message: str = ""
    """Why not, for users."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict of a machine's probes since this process started.

    ``ready`` is None until a threshold is reached; ``dead``: why the liveness probe failed, or empty.
    """

    ready: bool | None = None
    message: str = ""
    """Why it is not ready, or why the probe cannot run."""
    dead: str = ""


UNKNOWN: Final = Verdict()


@dataclass(frozen=True, slots=True)
class Tally:
    """A probe's results so far."""

    verdict: bool | None = None
    """None before either threshold was reached."""
    message: str = ""
    """For False: the last reason that repeated as often as the threshold; for None: why the probe cannot run."""
    successes: int = 0
    """Consecutive."""
    failures: int = 0
    """Consecutive."""
    newest: str = ""
    """Reason of the last failure."""
    repeated: int = 0
    """Consecutive failures with that reason."""


def counted(tally: Tally, probe: Probe, outcome: Outcome) -> Tally:
    """Return the tally after an outcome: at a threshold, the verdict changes. Undecided ones change nothing."""
    if outcome.succeeded is None:
        return tally
    if outcome.succeeded:
        found = replace(tally, successes=tally.successes + 1, failures=0, repeated=0)
        return replace(found, verdict=True, message="") if found.successes >= probe.success_threshold else found
    repeated = tally.repeated + 1 if outcome.message == tally.newest else 1
    found = replace(tally, successes=0, failures=tally.failures + 1, newest=outcome.message, repeated=repeated)
    decisive = found.repeated if tally.verdict is False else found.failures  # alternating reasons write no status each time
    return replace(found, verdict=False, message=outcome.message) if decisive >= probe.failure_threshold else found


def interrupted(tally: Tally) -> Tally:
    """Return the tally after a time without probes: the verdict stays, the counts begin again."""
    return replace(tally, successes=0, failures=0, newest="", repeated=0)
