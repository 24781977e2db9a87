"""Steps of an operation, held by stopping the process with the next action."""

from __future__ import annotations

import subprocess
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Final

from tests.cluster.kube import Kubectl
from tests.cluster.manifests import migration
from tests.cuts.cutting import Cuts, Place
from tests.cuts.guests import FINAL, MOVER, OTHER, Guests
from tests.cuts.reading import until

STEP_SECONDS: Final = 120
MOVING_BYTES: Final = 2 << 20
"""More sent bytes show that the memory phase has begun."""
RESTARTED: Final = ("deployment/virt-api", "deployment/virt-controller", "daemonset/virt-handler")


@dataclass
class Reached:
    place: Place
    guests: tuple[str, ...]
    migration: str = ""
    missed: str = ""
    drain: subprocess.Popen[bytes] | None = None
    notes: list[str] = field(default_factory=list)


class Steps:
    def __init__(self, guests: Guests, cuts: Cuts, system: Kubectl) -> None:
        self._guests = guests
        self._cuts = cuts
        self._system = system

    def reach(self, operation: str, step: str, held: ExitStack) -> Reached:
        place = self._guests.place(MOVER)
        match operation:
            case "migration":
                return self._with_target(self._migration(step, place, held))
            case "drain":
                return self._drain(step, place)
            case _:
                return self._with_target(self._upgrade(step, place))

    def _migration(self, step: str, place: Place, held: ExitStack) -> Reached:
        match step:
            case "Pending":
                held.enter_context(self._cuts.stopped(self._cuts.part("virt-controller"), "virt-controller"))
                return self._is_still(self._migrate(place), "", "Pending")
            case "Scheduling":
                self._guests.kubectl("cordon", place.target)
                held.callback(self._guests.kubectl, "uncordon", place.target)
                reached = self._migrate(place)
                self._wait_for(reached, "Scheduling")
                return self._is_still(reached, "Scheduling")
            case "PreparingTarget":
                reached = self._migrate(place)
                self._wait_for(reached, "PreparingTarget")
                held.enter_context(self._cuts.stopped([self._cuts.handler(place.target)], "virt-handler"))
                return self._is_still(reached, "PreparingTarget")
            case "TargetReady":
                reached = self._migrate(place)
                self._wait_for(reached, "Scheduling", "PreparingTarget")
                held.enter_context(self._cuts.stopped([self._cuts.handler(place.source)], "virt-handler"))
                self._wait_for(reached, "TargetReady")
                return self._is_still(reached, "TargetReady")
            case "Running":
                return self._is_still(self._moving(place), "Running")
            case "assignment":
                reached = self._moving(place)
                held.enter_context(self._cuts.stopped([self._cuts.handler(place.source)], "virt-handler"))
                until(
                    lambda: place.source_pod not in self._guests.qemus(MOVER),
                    seconds=STEP_SECONDS,
                    what="QEMU is gone from the source",
                )
                return self._is_still(reached, "Running")
            case _:
                reached = self._migrate(place)
                self._wait_for(reached, "Succeeded")
                return reached

    def _migrate(self, place: Place) -> Reached:
        name = self._guests.kubectl.api.create(migration(MOVER))["metadata"]["name"]
        return Reached(place, (MOVER,), name)

    def _moving(self, place: Place) -> Reached:
        reached = self._migrate(place)
        self._wait_for(reached, "Running")
        until(lambda: self._cuts.sent(place.source) > MOVING_BYTES, seconds=STEP_SECONDS, what="memory moves", period=0.2)
        return reached

    def _wait_for(self, reached: Reached, *phases: str) -> None:
        def seen() -> str:
            phase = str(self._guests.migration(reached.migration).get("phase") or "")
            return phase if phase in phases or phase in FINAL else ""

        until(seen, seconds=STEP_SECONDS, what=f"phase {phases[0]} of {reached.migration}", period=0.02)

    def _is_still(self, reached: Reached, *phases: str) -> Reached:
        status = until(lambda: self._guests.get(f"migrations/{reached.migration}"), seconds=10, what="the Migration is read").get("status")
        phase = str((status or {}).get("phase") or "")
        return reached if phase in phases else replace(reached, missed=f"the phase was {phase or 'none'}")

    def _with_target(self, reached: Reached) -> Reached:
        status = self._guests.migration(reached.migration)
        place = replace(reached.place, target_pod=str(status.get("targetPodUID") or ""), target_pod_name=str(status.get("targetPod") or ""))
        return replace(reached, place=place)

    def _drain(self, step: str, place: Place) -> Reached:
        self._together(place)
        guests = (MOVER, OTHER)
        known = {each: len(self._guests.migrations(each) or []) for each in guests}
        reached = Reached(place, guests, drain=drain(self._guests.kubectl, place.source))

        def moved() -> set[str]:
            return {each for each in guests if (node := self._guests.status(each).get("nodeName")) and node != place.source}

        match step:
            case "first":
                until(
                    lambda: any(len(self._guests.migrations(each) or []) > known[each] for each in guests),
                    seconds=STEP_SECONDS,
                    what="the first Migration of the drain",
                )
                gone = moved()
                return replace(reached, missed=f"{' and '.join(gone)} had moved" if gone else "")
            case "middle":
                gone = until(moved, seconds=STEP_SECONDS, what="one of the guests has moved")
                return replace(reached, missed="both had moved" if len(gone) > 1 else "")
            case _:
                until(lambda: len(moved()) == len(guests), seconds=STEP_SECONDS, what="both guests have moved")
                over = reached.drain is not None and reached.drain.poll() is not None
                return replace(reached, missed="the drain was over" if over else "")

    def _together(self, place: Place) -> None:
        if self._guests.place(OTHER).source == place.source:
            return
        made = self._guests.kubectl.api.create(migration(OTHER))["metadata"]["name"]
        until(lambda: self._guests.migration(made).get("phase") in FINAL, seconds=STEP_SECONDS, what="the other guest moves", period=0.3)

    def _upgrade(self, step: str, place: Place) -> Reached:
        reached = self._moving(place)
        handlers = {each["metadata"]["uid"] for each in self._cuts.part("virt-handler")}
        self._system("rollout", "restart", *RESTARTED)
        if step == "middle":

            def replaced() -> bool:
                return bool({each["metadata"]["uid"] for each in self._cuts.part("virt-handler")} - handlers)

            until(replaced, seconds=STEP_SECONDS, what="another virt-handler")
        return reached


def drain(kubectl: Kubectl, node: str) -> subprocess.Popen[bytes]:
    chosen = f"--pod-selector=vm.kubevirt.io/name in ({MOVER},{OTHER})"
    command = kubectl.command("drain", node, chosen, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=240s")
    return subprocess.Popen(command, env=kubectl.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
