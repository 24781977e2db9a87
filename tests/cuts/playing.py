"""Plays cases: bring the operation to its step, cut, and observe."""

from __future__ import annotations

import secrets
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.cluster import resources
from tests.cluster.api import is_rolled_out
from tests.cluster.conftest import RESTRICTED
from tests.cluster.kube import Kubectl
from tests.cluster.serving import a_service
from tests.cuts import cutting, losing
from tests.cuts.cutting import Cuts
from tests.cuts.description import END_SECONDS, Case, Expected
from tests.cuts.guests import FINAL, MOVER, OTHER, QUIET_SAMPLES, Guests, policies
from tests.cuts.judging import Guest, Seen
from tests.cuts.loss_playing import LossPlayer
from tests.cuts.reading import Late, Reader, until
from tests.cuts.steps import RESTARTED, Reached, Steps, drain
from tests.cuts.watching import Answers, Watch, asking
from tests.testbed import addons, build, layout, release

COUNT_SECONDS: Final = 150
"""For a guest to count afterwards, including a start elsewhere."""
ANSWER_SECONDS: Final = 60
"""How long the Service may take to answer afterwards."""
ANSWERS: Final = 5
"""One answer may belong to an earlier connection."""
BLIND_SECONDS: Final = 3
"""A longer gap in the observations makes the case inconclusive."""
DRAINS: Final = 6
"""Attempts, because ``kubectl drain`` gives up on transient errors."""


class Player:
    def __init__(self, kubectl: Kubectl, reader: Reader, watch: Watch, answers: Answers, held: ExitStack) -> None:
        system = Kubectl(kubectl.kubeconfig, release.NAMESPACE, kubectl.binary)
        self._kubectl = kubectl
        self._system = system
        self._cuts = Cuts(kubectl, reader, release.NAMESPACE)
        self._guests = Guests(kubectl, reader, watch)
        self._steps = Steps(self._guests, self._cuts, system)
        self._watch = watch
        self._answers = answers
        self._held = held
        self._losses: LossPlayer | None = None

    def prepare(self, *guests: str) -> None:
        until(self._cuts.recovered, seconds=240, what="all parts are ready", period=0.3)
        until(self._nodes_are_well, seconds=180, what="both nodes are ready", period=0.3)
        for guest in guests:
            if guest not in self._watch.guests:
                self._guests.start(guest)
        for guest in guests:
            until(partial(self._is_idle, guest), seconds=180, what=f"no Migration of {guest} is under way", period=0.3)
            if not self._guests.count_on(guest):
                raise Late(f"{guest} does not count: {self._guests.status(guest)}")

    def play(self, case: Case) -> Seen:
        return self._play_loss(case) if case.step.operation == "loss" else self._play(case)

    def _play_loss(self, case: Case) -> Seen:
        if self._losses is None:
            self._losses = LossPlayer(self._kubectl, self._system, self._guests, self._steps, self._answers, self._held)
        guest = self._losses.guest_of(case)
        self.prepare(guest)
        self._observe(guest)
        seen = self._losses.play(case, guest, self._guests.watched(guest).disk.newest())
        is_answered = guest != MOVER or self._is_answered()
        self._check_sight(guest)
        return replace(seen, is_answered=is_answered, over=time.monotonic())

    def _observe(self, *guests: str) -> None:
        self._watch.forget()
        until(
            lambda: all(len(self._guests.watched(each).samples) > QUIET_SAMPLES for each in guests), seconds=30, what="looks at the guests"
        )

    def _check_sight(self, *guests: str) -> None:
        for each in guests:
            if time.monotonic() - self._guests.watched(each).samples[-1].at > BLIND_SECONDS:
                raise Late(f"nobody looks at {each} any more: {self._watch.fault or 'the thread ended'}")

    def _play(self, case: Case) -> Seen:
        guests = (MOVER, OTHER) if case.step.operation == "drain" else (MOVER,)
        self.prepare(*guests)
        first = {each: self._guests.watched(each).disk.newest() for each in guests}
        self._observe(*guests)
        begun = time.monotonic()
        with ExitStack() as mending:
            mending.callback(self._uncordon)
            with ExitStack() as held:
                reached = self._steps.reach(case.step.operation, case.step.name, held)
                doomed = {each: self._guests.qemus(each) for each in guests} if case.expected is Expected.RESTARTS else {}
                cut_at = time.monotonic()
                mend = self._cuts.make(case.cut.name, reached.place)
            mend()
            seconds, repeated = self._end(case, reached, cut_at)
        if doomed:
            until(partial(self._have_ended, doomed), seconds=END_SECONDS, what="the cut guest's QEMU ends", period=0.3)
        counts = {each: self._guests.count_on(each, seconds=COUNT_SECONDS, on_console=True) for each in guests}
        is_answered = self._is_answered()
        over = time.monotonic()
        self._check_sight(*guests)
        return Seen(
            expected=case.expected,
            cut_at=cut_at,
            over=over,
            guests=[self._seen(each, reached, first[each], counts[each], seconds) for each in guests],
            step_seen=reached.missed,
            operation_seconds=seconds,
            answers=[each for each in list(self._answers.times) if each >= begun],
            failures=[each for each in list(self._answers.failures) if each.at >= begun],
            is_answered=is_answered,
            is_undisturbed=case.is_undisturbed,
            repeated=repeated,
        )

    def _end(self, case: Case, reached: Reached, cut_at: float) -> tuple[float | None, int]:
        repeated = 0
        try:
            if reached.migration:
                until(
                    lambda: self._guests.migration(reached.migration).get("phase") in FINAL, seconds=END_SECONDS, what="the end", period=0.1
                )
            if case.step.operation == "upgrade":
                for each in RESTARTED:
                    until(partial(self._is_rolled_out, each), seconds=END_SECONDS, what=f"the rollout of {each}", period=0.5)
            if reached.drain is not None:
                repeated = self._drained(reached.drain, reached.place.source)
        except Late as late:
            print(f"    {late}", flush=True)
            return None, repeated
        return time.monotonic() - cut_at, repeated

    def _have_ended(self, doomed: Mapping[str, set[str]]) -> bool:
        """Return whether these guests left these pods. A guest in a deleted pod counts until it is shut down."""
        return not any(self._guests.qemus(guest) & pods for guest, pods in doomed.items())

    def _drained(self, running: subprocess.Popen[bytes], node: str) -> int:
        deadline = time.monotonic() + END_SECONDS
        for repeated in range(DRAINS):
            try:
                if running.wait(max(1.0, deadline - time.monotonic())) == 0:
                    return repeated
            except subprocess.TimeoutExpired:
                break
            running = drain(self._kubectl, node)
        running.kill()
        running.wait()
        raise Late(f"{node} is not drained within {END_SECONDS:.0f} s")

    def _is_rolled_out(self, workload: str) -> bool:
        kind, _, name = workload.partition("/")
        found = self._guests.reader.get(resources.named(kind).path(self._system.namespace, name))
        return bool(found) and is_rolled_out(found)

    def _is_answered(self) -> bool:
        heard = len(self._answers.times)
        deadline = time.monotonic() + ANSWER_SECONDS
        while len(self._answers.times) < heard + ANSWERS:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        return True

    def _seen(self, guest: str, reached: Reached, first: int, counts: bool, seconds: float | None) -> Guest:
        watched = self._guests.watched(guest)
        last = watched.disk.newest()
        status = self._of_migration(reached.migration) if reached.migration else self._newest_migration(guest)
        phase = str(status.get("phase") or "")
        return Guest(
            name=guest,
            samples=list(watched.samples),
            lost=watched.disk.missing(first, last),
            boots=watched.disk.boots(first, last),
            counts=counts,
            phase=phase,
            seconds=seconds if phase in FINAL else None,
            attempts=int(status.get("attempt") or 1),
            message=str(status.get("message") or ""),
        )

    def _of_migration(self, name: str) -> dict[str, Any]:
        found = until(lambda: self._guests.get(f"migrations/{name}"), seconds=60, what=f"Migration {name} is read")
        status: dict[str, Any] = found.get("status") or {}
        return status

    def _newest_migration(self, guest: str) -> dict[str, Any]:
        found = until(lambda: self._guests.migrations(guest), seconds=60, what=f"the Migrations of {guest}")
        status: dict[str, Any] = found[-1].get("status") or {}
        return status

    def _is_idle(self, guest: str) -> bool:
        found = self._guests.migrations(guest)
        return found is not None and all((each.get("status") or {}).get("phase") in FINAL for each in found)

    def _nodes_are_well(self) -> bool:
        found = (self._guests.reader.get("/api/v1/nodes") or {}).get("items") or []
        ready = [
            not each["spec"].get("unschedulable")
            and any(condition["type"] == "Ready" and condition["status"] == "True" for condition in each["status"]["conditions"])
            for each in found
        ]
        return len(ready) == len(layout.NODES) and all(ready)

    def _uncordon(self) -> None:
        self._kubectl("uncordon", *(each.name for each in layout.NODES))


@contextmanager
def playing(kubeconfig: Path) -> Iterator[Player]:
    kubectl = Kubectl(kubeconfig, f"cuts-{secrets.token_hex(3)}", str(build.program("kubernetes", "kubectl")))
    cutting.heal()
    losing.heal()
    kubectl("uncordon", *(each.name for each in layout.NODES))
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": kubectl.namespace, "labels": RESTRICTED}}
    kubectl.api.create(namespace)
    made = policies(kubectl.namespace)
    try:
        kubectl.api.apply(*made)
        (service,) = kubectl.api.apply(a_service(MOVER, MOVER))
        address = str(service["spec"]["clusterIP"])
        with (
            closing(Reader(kubectl.kubeconfig)) as reader,
            Watch() as watch,
            asking(layout.NODES[0], address) as answers,
            ExitStack() as held,
        ):
            yield Player(kubectl, reader, watch, answers, held)
    finally:
        cutting.heal()
        losing.heal()
        names = [each["metadata"]["name"] for each in made]
        kubectl.try_run("delete", "migrationpolicies", *names, "--ignore-not-found", timeout=90)
        kubectl.try_run("delete", "namespace", kubectl.namespace, "--ignore-not-found", "--timeout=150s", timeout=160)
        addons.recycle_shared_volumes()
