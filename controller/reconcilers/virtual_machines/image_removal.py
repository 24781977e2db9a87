"""The removal of a deleted machine's image: a short-lived pod deletes it, because only pods reach claims. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from apiserver.apis.meta import times
from apiserver.apis.meta.objects import dig, is_deleting, name_of
from apiserver.apis.virt.lifecycle import managed_save
from controller.reconcilers.actions import MIN_REQUEUE_SECONDS, Action, CreatePod, Emit, Requeue
from controller.reconcilers.launcher_pods import launcher_pod
from controller.reconcilers.pods import liveness, pod_state
from controller.reconcilers.virtual_machines.observed import Observed

LIMIT_SECONDS: Final = 300.0
"""Time for the pod, after which the machine goes without it: a deletion must not hang on storage that is away."""
KEPT: Final = "ImageNotDeleted"


class Steps(NamedTuple):
    """Actions, and whether the machine may go after them."""

    actions: tuple[Action, ...]
    is_over: bool


def remove(seen: Observed) -> Steps:
    """Return the next steps; no other pod of the machine may run."""
    image = managed_save.of(seen.vm)
    if image is None:
        return Steps((), is_over=True)
    pod = next((each for each in seen.pods if name_of(each) == launcher_pod.removal_pod_name(seen.vm)), None)
    if pod is None:
        return _begin(seen, str(image["claimName"]))
    if not liveness.may_run(pod, seen.evidence):
        end = pod_state.end_of(pod)
        return _kept(image["file"], end.message) if pod_state.phase_of(pod) != "Succeeded" else Steps((), is_over=True)
    left = LIMIT_SECONDS - (seen.now - times.parse(str(dig(pod, "metadata", "creationTimestamp")))).total_seconds()
    if left > 0:
        return Steps((Requeue(max(left, MIN_REQUEUE_SECONDS)),), is_over=False)
    return _kept(image["file"], f"pod {name_of(pod)} did not end within {LIMIT_SECONDS:.0f} s")


def _begin(seen: Observed, claim: str) -> Steps:
    found = seen.claims.get(claim)
    if found is None or is_deleting(found):
        return Steps((), is_over=True)  # it goes with the claim
    if seen.refusal:
        return _kept(claim, seen.refusal)
    return Steps((CreatePod(launcher_pod.removal_pod(seen.vm, claim, seen.settings), seen.vm), Requeue(LIMIT_SECONDS)), is_over=False)


def _kept(what: str, why: str) -> Steps:
    return Steps((Emit("Warning", KEPT, f"the image of the guest's memory stays in its claim ({what}): {why}"),), is_over=True)
