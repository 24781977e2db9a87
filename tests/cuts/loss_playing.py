"""Plays losses of a node: bring the guest there, lose the node, and observe until it is back."""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from tests.cluster import guardian_losses, losses
from tests.cluster.kube import Kubectl
from tests.cluster.manifests import migration
from tests.cluster.test_node_shutdown import cordoned
from tests.cuts import losing
from tests.cuts.description import END_SECONDS, LOSS_SECONDS, STOPPED_SECONDS, Case, Expected
from tests.cuts.guests import FINAL, MOVER, STORED, Guests
from tests.cuts.judging import Guest, Seen
from tests.cuts.losing import Losses
from tests.cuts.reading import Late, until
from tests.cuts.steps import Steps
from tests.cuts.watching import SECTOR, SECTORS, Answers
from tests.fakes.board import Board
from tests.host.launcher.servers import IscsiTarget
from tests.testbed import layout

MOVE_SECONDS: Final = 180
COUNT_SECONDS: Final = 150
"""For a guest to count afterwards, including its boot."""
GUARDIAN: Final = "guardian"
UNIT_BYTES: Final = SECTORS * SECTOR
SILENT: Final = "https://127.0.0.1:1"
"""To where a board without proof redirects the agent."""


class LossPlayer:
    """Plays the loss of the node that does not run our etcd. A fence agent with a fake board, or guardians, prove it."""

    def __init__(self, kubectl: Kubectl, system: Kubectl, guests: Guests, steps: Steps, answers: Answers, held: ExitStack) -> None:
        self._kubectl = kubectl
        self._system = system
        self._guests = guests
        self._steps = steps
        self._answers = answers
        node, self._other = losses.other_than_etcds(system)
        self._losses = Losses(system, node)
        self._board = Board(self._losses.power_off)
        self._directory = Path(held.enter_context(tempfile.TemporaryDirectory()))
        self._proofs = held.enter_context(ExitStack())
        self._leases: Kubectl | None = None
        self._has_agent = False
        self._unit = self._directory / "unit"
        self._unit.write_bytes(bytes(UNIT_BYTES))
        self._target = IscsiTarget(self._unit, address=layout.CONTROL_PLANE_ADDRESS)
        held.callback(self._target.__exit__)
        self._target.start()

    def guest_of(self, case: Case) -> str:
        self._install(with_guardians=case.step.name == GUARDIAN)
        if case.cut.name != "from-storage":
            return MOVER
        if not self._guests.is_started(STORED):
            self._guests.start_on(STORED, self._unit, self._target)
        return STORED

    def _install(self, *, with_guardians: bool) -> None:
        if with_guardians and self._leases is None:
            self._proofs.close()
            self._has_agent = False
            self._leases = self._proofs.enter_context(guardian_losses.guardians(self._system, self._own_directory()))
        if not with_guardians and not self._has_agent:
            self._proofs.close()
            self._leases, self._has_agent = None, True
            self._proofs.enter_context(losses.fence_agent(self._system, self._own_directory(), self._board, self._losses.node.name))

    def _own_directory(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self._directory))

    def play(self, case: Case, guest: str, first: int) -> Seen:
        """Return what was seen of the loss. ``first``: the guest's newest number before."""
        begun = time.monotonic()
        self._board.power, self._board.redirect = "On", SILENT if case.step.name == "no-proof" else ""
        self._board.resets.clear()
        with ExitStack() as held:
            missed = self._reach(case.step.name, guest, held)
            before = self._guests.status(guest)
            if self._leases is not None:
                pod = {"metadata": {"name": before["podName"], "uid": before["podUID"]}}
                guardian_losses.is_promised(self._leases, self._losses.node.name, pod)
            cut_at = time.monotonic()
            with self._losses.lost(case.cut.name, self._target.portal_port):
                seconds = self._await_elsewhere(case, guest, cut_at)
        seconds = self._await_return(case, guest, cut_at) if seconds is None else seconds
        counts = self._guests.count_on(guest, seconds=COUNT_SECONDS, on_console=True)
        further = self._faults(case, before, self._guests.status(guest))
        watched = self._guests.watched(guest)
        last = watched.disk.newest()
        return Seen(
            expected=case.expected,
            cut_at=cut_at,
            over=time.monotonic(),
            guests=[Guest(guest, list(watched.samples), watched.disk.missing(first, last), watched.disk.boots(first, last), counts, "")],
            step_seen=missed,
            operation_seconds=seconds,
            answers=[each for each in list(self._answers.times) if each >= begun] if guest == MOVER else (),
            failures=[each for each in list(self._answers.failures) if each.at >= begun] if guest == MOVER else (),
            further=further,
        )

    def _reach(self, step: str, guest: str, held: ExitStack) -> str:
        lost = self._losses.node.name
        self._move(guest, self._other if step == "target" else lost)
        if step in ("source", "target"):
            return self._steps.reach("migration", "Running", held).missed
        if step == "starting":
            attempt = int(self._guests.status(guest).get("attempt") or 0)
            with cordoned(self._system, self._other):
                self._kubectl("virt", "restart", guest)
                until(lambda: self._starts(guest, attempt, lost), seconds=MOVE_SECONDS, what="the next start")
        return ""

    def _starts(self, guest: str, attempt: int, node: str) -> bool:
        status = self._guests.status(guest)
        begun = int(status.get("attempt") or 0) > attempt
        return begun and status.get("phase") in ("Scheduled", "Running") and status.get("nodeName") == node

    def _move(self, guest: str, node: str) -> None:
        if self._guests.status(guest).get("nodeName") == node:
            return
        name = self._kubectl.api.create(migration(guest, node=node))["metadata"]["name"]
        until(lambda: self._guests.migration(name).get("phase") in FINAL, seconds=MOVE_SECONDS, what=f"{guest} moves to {node}", period=0.3)
        if self._guests.status(guest).get("nodeName") != node:
            raise Late(f"{guest} is not on {node}: {self._guests.migration(name)}")
        until(lambda: self._guests.count_on(guest), seconds=MOVE_SECONDS, what=f"{guest} counts on {node}")

    def _await_elsewhere(self, case: Case, guest: str, cut_at: float) -> float | None:
        if case.expected is not Expected.ELSEWHERE:
            losing.waited(STOPPED_SECONDS if case.cut.name == "handler-stopped" else LOSS_SECONDS)
            return None
        if case.step.name == "person":
            until(lambda: self._guests.status(guest).get("phase") == "Unknown", seconds=END_SECONDS, what="phase Unknown")
            self._kubectl("virt", "fence", self._losses.node.name, "--off", "--yes")
        return self._awaited(guest, lambda status: status.get("nodeName") == self._other, "the guest elsewhere", cut_at)

    def _await_return(self, case: Case, guest: str, cut_at: float) -> float | None:
        if case.expected is Expected.ELSEWHERE:
            return None
        return self._awaited(guest, lambda _: True, "the guest after the loss", cut_at)

    def _awaited(self, guest: str, is_there: Any, what: str, cut_at: float) -> float | None:
        def runs() -> bool:
            status = self._guests.status(guest)
            return status.get("phase") == "Running" and is_there(status)

        try:
            until(runs, seconds=END_SECONDS, what=what, period=0.2)
        except Late as late:
            print(f"    {late}", flush=True)
            return None
        return time.monotonic() - cut_at

    def _faults(self, case: Case, before: dict[str, Any], after: dict[str, Any]) -> list[str]:
        found = []
        if case.expected is Expected.STAYS:
            found += ["fenced: the agent switched the node off"] if self._board.resets else []
            found += ["it has another pod"] if before.get("podUID") != after.get("podUID") else []
        if case.expected is Expected.ELSEWHERE and after.get("nodeName") != self._other:
            found.append(f"it runs on {after.get('nodeName')}")
        return found
