"""Remembers the failed steps of running guests until their next attempts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from apiserver.apis.meta.objects import Object
from handler.pods.links import Link
from handler.reconcilers.guests import device_steps, guest_status, guest_steps
from handler.reconcilers.guests.device_steps import Failure, Failures, Step


class FailedSteps:
    """Failed or waiting steps, and when each is due again, by the pod's uid."""

    def __init__(self) -> None:
        self._failures: dict[str, dict[str, Failure]] = {}

    def of(self, pod_uid: str) -> Failures:
        """Return the failed steps of a pod's guest by the device's path."""
        return self._failures.get(pod_uid, {})

    def forget(self, is_alive: Callable[[str], bool]) -> None:
        """Forget the failed steps of pods that are gone."""
        self._failures = {uid: found for uid, found in self._failures.items() if is_alive(uid)}

    def begin(self, vm: Object, link: Link) -> None:
        """Forget the failures of steps that the guest does not need any more; of all steps without the launcher's status."""
        missing = guest_steps.missing(vm, link.status) if link.status is not None else ()
        self._failures[link.pod_uid] = device_steps.current(missing, self.of(link.pod_uid))

    def succeeded(self, pod_uid: str, step: Step) -> None:
        """Forget a step's failure."""
        self._failures.get(pod_uid, {}).pop(step.path, None)

    def failed(self, pod_uid: str, step: Step, problem: str, *, waits: bool = False, patience: int = 0) -> None:
        """Record a failed attempt; ``waits``: the step needs a new pod of the machine; ``patience``: attempts that may fail as expected."""
        found, now = self._failures.setdefault(pod_uid, {}), asyncio.get_running_loop().time()
        told, before = guest_status.printable(problem), found.get(step.path)
        found[step.path] = device_steps.failure_after(step, told, before, now, waits=waits, patience=patience)

    def delayed(self, pod_uid: str, step: Step, message: str, seconds: float) -> None:
        """Record that a step may not begin for these seconds, and ``message``, which says why."""
        found, now = self._failures.setdefault(pod_uid, {}), asyncio.get_running_loop().time()
        found[step.path] = device_steps.delayed(step, message, found.get(step.path), now + seconds)

    def unfinished(self, pod_uid: str, step: Step, message: str, seconds: float, *, has_failed: bool) -> None:
        """Record that a step goes on after these seconds, without counting an attempt; ``has_failed``: what it waits for failed so far."""
        found, again = self._failures.setdefault(pod_uid, {}), asyncio.get_running_loop().time() + seconds
        told = guest_status.printable(message)
        found[step.path] = device_steps.unfinished(step, told, found.get(step.path), again, has_failed=has_failed)
