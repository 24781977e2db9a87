"""Tally of the answers to a probe, by its thresholds. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from apiserver.apis.virt.spec.probes import Probe


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of one question."""

    succeeded: bool | None
    """None: nobody could ask, for a reason that is not the guest's."""
    message: str = ""
    """Reason why it did not succeed, for people."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Verdict of a machine's probes since this process began."""

    ready: bool | None = None
    """None: nobody knows yet."""
    message: str = ""
    """Reason why it is not ready; where nobody knows: why nobody can ask."""
    dead: str = ""
    """Reason why the guest is not alive; empty while nobody says so."""


UNKNOWN: Final = Verdict()


@dataclass(frozen=True, slots=True)
class Tally:
    """All that came of the questions so far."""

    verdict: bool | None = None
    """None before either threshold was reached."""
    message: str = ""
    """Of a verdict that is False: the last reason that came as often in a row as the threshold says; of None: why nobody can ask."""
    successes: int = 0
    """In a row, up to now."""
    failures: int = 0
    """In a row, up to now."""
    newest: str = ""
    """Reason of the last failure."""
    repeated: int = 0
    """Failures in a row with that reason."""


def counted(tally: Tally, probe: Probe, outcome: Outcome) -> Tally:
    """Return the tally with one more outcome."""
    if outcome.succeeded is None:
        return tally
    if outcome.succeeded:
        found = replace(tally, successes=tally.successes + 1, failures=0, repeated=0)
        return replace(found, verdict=True, message="") if found.successes >= probe.success_threshold else found
    repeated = tally.repeated + 1 if outcome.message == tally.newest else 1
    found = replace(tally, successes=0, failures=tally.failures + 1, newest=outcome.message, repeated=repeated)
    decisive = found.repeated if tally.verdict is False else found.failures  # reasons that take turns write no status each time
    return replace(found, verdict=False, message=outcome.message) if decisive >= probe.failure_threshold else found


def interrupted(tally: Tally) -> Tally:
    """Return the tally after a time in which nobody could ask: what follows is in a row with nothing before."""
    return replace(tally, successes=0, failures=0, newest="", repeated=0)
