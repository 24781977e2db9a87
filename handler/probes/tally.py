"""Tally of the answers to a probe, by its thresholds. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from apiserver.apis.virt.probes import Probe


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
    """Of a verdict that is False: why, as it was when it became so; of None: why nobody can ask."""
    successes: int = 0
    """In a row, up to now."""
    failures: int = 0
    """In a row, up to now."""


def counted(tally: Tally, probe: Probe, outcome: Outcome) -> Tally:
    """Return the tally with one more outcome."""
    if outcome.succeeded is None:
        return tally
    if outcome.succeeded:
        found = replace(tally, successes=tally.successes + 1, failures=0)
        return replace(found, verdict=True, message="") if found.successes >= probe.success_threshold else found
    found = replace(tally, successes=0, failures=tally.failures + 1)
    if found.failures < probe.failure_threshold or tally.verdict is False:
        return found
    return replace(found, verdict=False, message=outcome.message)


def interrupted(tally: Tally) -> Tally:
    """Return the tally after a time in which nobody could ask: what follows is in a row with nothing before."""
    return replace(tally, successes=0, failures=0)
