"""The removal of a deleted machine's files with memory: a short-lived pod deletes them, because only pods reach claims. Pure.

virt-handler deletes images on a node's disk. Without ``status.managedSave`` there may be such files too: an image that was not completed,
or was used, or that no status recorded.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from apiserver.apis.meta import times
from apiserver.apis.meta.objects import Object, dig, is_deleting, name_of, uid_of
from apiserver.apis.virt.lifecycle import managed_save, power
from apiserver.apis.virt.spec import running
from controller.reconcilers import disk_claims
from controller.reconcilers.actions import MIN_REQUEUE_SECONDS, Action, CreatePod, Emit, Requeue
from controller.reconcilers.launcher_pods import launcher_pod
from controller.reconcilers.pods import liveness, pod_state
from controller.reconcilers.virtual_machines.observed import Observed

LIMIT_SECONDS: Final = 300.0
"""A deletion must not hang on unavailable storage."""
KEPT: Final = "ImageNotDeleted"


class Steps(NamedTuple):
    """Actions, and whether the machine may go after them."""

    actions: tuple[Action, ...]
    is_over: bool


def remove(seen: Observed) -> Steps:
    """Return actions that remove a deleted machine's memory files, and whether that is over; call it once no other pod of it runs."""
    claim = _claim(seen.vm)
    if not claim:
        return Steps((), is_over=True)
    pod = next((each for each in seen.pods if name_of(each) == launcher_pod.removal_pod_name(seen.vm)), None)
    if pod is None:
        return _begin(seen, claim)
    if not liveness.may_run(pod, seen.evidence):
        end = pod_state.end_of(pod)
        return _kept(seen, claim, end.message) if pod_state.phase_of(pod) != "Succeeded" else Steps((), is_over=True)
    left = LIMIT_SECONDS - (seen.now - times.parse(str(dig(pod, "metadata", "creationTimestamp")))).total_seconds()
    if left > 0:
        return Steps((Requeue(max(left, MIN_REQUEUE_SECONDS)),), is_over=False)
    return _kept(seen, claim, f"pod {name_of(pod)} did not end within {LIMIT_SECONDS:.0f} s")


def _claim(vm: Object) -> str:
    if (image := managed_save.of(vm)) is not None and image.get("claimName"):
        return str(image["claimName"])
    return managed_save.claim_of(running.spec_of(vm)) if power.current_attempt(vm) else ""


def _begin(seen: Observed, claim: str) -> Steps:
    found = seen.claims.get(claim)
    if found is None or is_deleting(found) or disk_claims.images_on_device(seen.vm, seen.claims):
        return Steps((), is_over=True)
    if seen.refusal:
        return _kept(seen, claim, seen.refusal)
    return Steps((CreatePod(launcher_pod.removal_pod(seen.vm, claim, seen.settings), seen.vm), Requeue(LIMIT_SECONDS)), is_over=False)


def _kept(seen: Observed, claim: str, why: str) -> Steps:
    message = f"the guest's memory may stay in PersistentVolumeClaim {claim}, directory {uid_of(seen.vm)}: {why}"
    return Steps((Emit("Warning", KEPT, message),), is_over=True)
