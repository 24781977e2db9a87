"""What became of a verb, from its machine: done, failed, or unknown yet. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from apiserver.apis.meta import objects
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import conditions, operations, phases, power, summary

FORGOTTEN: Final = "status.operations of the machine no longer lists it"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a verb ended: with success, or a ``problem``."""

    problem: str = ""
    """Empty if done."""


Judge = Callable[[Object], Outcome | None]
"""Judges the newest state of a verb's machine; None: unknown yet."""


def of_operation(operation_id: str) -> Judge:
    """Return the Judge of the operation with this id: None until it ends, a problem once the machine no longer lists it."""

    def judge(vm: Object) -> Outcome | None:
        found = operations.find(vm, operation_id)
        if found is None:
            return Outcome(FORGOTTEN)
        if not operations.is_finished(found):
            return None
        return Outcome("" if found["result"] == operations.SUCCEEDED else str(found.get("message") or "it failed"))

    return judge


def of_level(verb: str, answer: Object) -> Judge:
    """Return the Judge of a verb such as ``start``: None until the machine reaches its level or fails.

    ``answer``: the machine after the call. Verbs other than ``start``, ``resume``, ``restart``, ``stop``, ``poweroff`` and ``pause`` are
    judged as ``unpause``.
    """
    match verb:
        case "start" | "resume" | "restart":
            return _on(int(dig_vm(answer, "status", "request", "attempt") or 0))
        case "stop" | "poweroff":
            return _off
        case "pause":
            return _paused(wanted=True)
        case _:
            resumed = [each for each in operations.of(answer) if each.get("action") == operations.RESUME]
            return of_operation(resumed[-1]["id"]) if resumed and not operations.is_finished(resumed[-1]) else _paused(wanted=False)


def of_earlier_start(vm: Object, verb: str) -> Judge | None:
    """Return the Judge of a start that was requested before; None if ``verb`` cannot wait for it.

    None: the machine should not be on, is paused, or runs already and ``verb`` is not ``start``.
    """
    decision = power.decide(vm)
    runs = phases.phase_of(vm) == phases.RUNNING and power.current_attempt(vm) == decision.attempt
    if not decision.on or summary.word(vm) == summary.PAUSED or (runs and verb != "start"):
        return None
    return _on(decision.attempt)


def _on(attempt: int) -> Judge:
    def judge(vm: Object) -> Outcome | None:
        decision, newest = power.decide(vm), power.newest_attempt(vm)
        if power.current_attempt(vm) >= attempt and phases.phase_of(vm) == phases.RUNNING:
            return Outcome()
        if power.has_ended(newest) and int(newest["number"]) >= attempt:
            return Outcome(str(newest.get("message") or f"attempt {newest['number']} ended: {newest['result']}"))
        return None if decision.on else Outcome(decision.message)

    return judge


def _off(vm: Object) -> Outcome | None:
    decision = power.decide(vm)
    if decision.on:
        return Outcome(f"it is on again: {decision.message}")
    return Outcome() if phases.phase_of(vm) not in phases.WITH_POD else None


def _paused(*, wanted: bool) -> Judge:
    def judge(vm: Object) -> Outcome | None:
        if phases.phase_of(vm) != phases.RUNNING:
            return Outcome(f"it is {phases.phase_of(vm) or phases.PENDING}")
        stands = objects.is_true(dig_vm(vm, "status", "conditions"), conditions.PAUSED)
        return Outcome() if stands == wanted else None

    return judge


def waits_for(vm: Object) -> str:
    """Return why a machine is not Ready, as ``REASON: MESSAGE``; empty if its status gives no message."""
    ready = objects.condition(dig_vm(vm, "status", "conditions"), conditions.READY) or {}
    return f"{ready.get('reason')}: {ready.get('message')}" if ready.get("status") == "False" and ready.get("message") else ""


def deleted(verb: str) -> Outcome:
    """Return a verb's Outcome for a deleted machine: success for ``stop`` and ``poweroff``."""
    return Outcome("" if verb in ("stop", "poweroff") else "the machine was deleted")
