"""``python -m tests.cuts [WORDS]``: plays the cases with one of the words in their names, and writes docs/faults.md.

Cases with a good outcome in build/faults are skipped without ``--fresh``.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime

from apiserver.apis.meta import errors
from apiserver.client.rest import TransportError
from tests.cluster import turns
from tests.cuts import description, outcomes, table
from tests.cuts.description import Case
from tests.cuts.outcomes import Outcome
from tests.cuts.playing import Player, playing
from tests.cuts.reading import Late
from tests.testbed import kubectl as testbed_kubectl
from tests.testbed import layout
from tests.testbed.progress import StepFailed

FAULTS_OF_THE_RUN = (
    Late, AssertionError, LookupError, OSError, subprocess.SubprocessError, StepFailed, errors.StatusError, TransportError,
)  # fmt: skip
"""Not caused by the cut: another deployment, a kubectl without an answer."""
AGAIN_SECONDS = 20
TRIES = 3


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cuts", description=__doc__)
    parser.add_argument("words", nargs="*", help="parts of names of cases, such as handler-source or drain.etcd; default: all cases")
    parser.add_argument("--fresh", action="store_true", help="play cases again of which a good outcome is kept")
    parser.add_argument("--list", action="store_true", help="print the names of the cases, and play none")
    given = parser.parse_args()
    try:
        cases = description.chosen(" ".join(given.words))
    except ValueError as error:
        parser.error(str(error))
    if given.list:
        print("\n".join(each.name for each in cases))
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM repairs the cuts
    if given.fresh:
        outcomes.forget(cases)
    if not testbed_kubectl.is_own_cluster():
        parser.error("KUBECONFIG names another cluster than that of `make cluster-up`, whose processes and links this machine has")
    known = outcomes.kept(cases)
    left = [each for each in cases if each.name not in known or known[each.name].faults]
    with turns.one_at_a_time(turns.LOCK):
        bad = play(left)
    table.write(outcomes.kept(description.cases()), datetime.now(UTC).strftime("%Y-%m-%d"))
    print(f"{len(cases) - len(bad)} of {len(cases)} cases are good; {table.DOCUMENT.relative_to(layout.REPOSITORY)} has them")
    return 1 if bad else 0


def play(cases: Sequence[Case]) -> list[str]:
    bad: list[str] = []
    began, left, failures = time.monotonic(), list(cases), 0
    while left and failures < TRIES:
        try:
            with playing(layout.kubeconfig()) as player:
                is_well = True
                while left and is_well:
                    case = left.pop(0)
                    found = play_one(player, case)
                    outcomes.write(found)
                    passed = f"{len(cases) - len(left)}/{len(cases)} {(time.monotonic() - began) / 60:.1f} min"
                    print(f"{passed} {case.name}: {found.text} {'; '.join(found.faults) or 'good'}", flush=True)
                    is_well, failures = not found.faults, 0
                    bad += [case.name] if found.faults else []
        except FAULTS_OF_THE_RUN as fault:
            failures += 1
            print(f"    the guests of the run cannot be made, or taken away: {type(fault).__name__}: {fault}", flush=True)
            time.sleep(AGAIN_SECONDS)
    return bad + [each.name for each in left]


def play_one(player: Player, case: Case) -> Outcome:
    found = Outcome(case.name, "", ("not played",), commit(), 0.0)
    for _ in range(TRIES):
        try:
            seen = player.play(case)
        except FAULTS_OF_THE_RUN as fault:
            words = f"{type(fault).__name__}: {fault}"[:500]
            print(f"    {case.name}: {words}", flush=True)
            found = Outcome(case.name, "", (f"missed: {words}",), commit(), 0.0)
            continue
        found = outcomes.outcome(case, seen, commit())
        if not seen.step_seen:
            break
    return found


def commit() -> str:
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=layout.REPOSITORY, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
