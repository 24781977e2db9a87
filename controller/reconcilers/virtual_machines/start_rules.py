"""The rules that a start waits for, in order. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.objects import Object, name_of
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import conditions, managed_save, node_loss, power, summary
from controller.reconcilers import disk_claims
from controller.reconcilers.actions import MIN_REQUEUE_SECONDS
from controller.reconcilers.launcher_pods import cpu
from controller.reconcilers.pods import networks, pod_state
from controller.reconcilers.virtual_machines import attempts, restart_turns, unreachable_nodes
from controller.reconcilers.virtual_machines.observed import Observed
from controller.reconcilers.virtual_machines.statuses import Obstacle

SAVED_ON_ANOTHER_NODE: Final = "SavedOnAnotherNode"

Rule: TypeAlias = Callable[[Observed, power.Power], Obstacle | None]


def first_obstacle(seen: Observed, decision: power.Power) -> Obstacle | None:
    """Return what keeps the next attempt from starting, or None."""
    return next((found for rule in RULES if (found := rule(seen, decision)) is not None), None)


def claim_not_found(seen: Observed, _: power.Power) -> Obstacle | None:
    """Return an obstacle if a claim does not exist."""
    if not (missing := disk_claims.missing(seen.vm, seen.claims)):
        return None
    message = f"PersistentVolumeClaim not found: {', '.join(missing)}; the virtual machine starts when it exists"
    if (image := managed_save.of(seen.vm)) is not None and image.get("claimName") in missing:
        message += f"; {without_memory(name_of(seen.vm), str(image['claimName']))}"
    return Obstacle(conditions.DISKS_READY, conditions.CLAIM_NOT_FOUND, message)


def claim_being_deleted(seen: Observed, _: power.Power) -> Obstacle | None:
    """Return an obstacle if a claim is being deleted. A new pod would keep it for ever."""
    if not (going := disk_claims.being_deleted(seen.vm, seen.claims)):
        return None
    message = (
        f"PersistentVolumeClaim is being deleted: {', '.join(going)}; stop the pods that use it, then create a new claim with that "
        "name; the virtual machine starts then"
    )
    return Obstacle(conditions.DISKS_READY, conditions.CLAIM_BEING_DELETED, message)


def claim_of_firmware_is_block(seen: Observed, _: power.Power) -> Obstacle | None:
    """Return an obstacle if the claim for the firmware's files is a block device."""
    if not (claim := disk_claims.without_directory(seen.vm, seen.claims)):
        return None
    message = f"PersistentVolumeClaim {claim} is a block device: spec.domain.firmware.persistentState needs volume mode Filesystem"
    return Obstacle(conditions.DISKS_READY, conditions.CLAIM_WITHOUT_FILES, message)


def claim_of_filesystem_is_block(seen: Observed, _: power.Power) -> Obstacle | None:
    """Return an obstacle if the claim of a shared file system is a block device."""
    if not (on_devices := disk_claims.filesystems_on_devices(seen.vm, seen.claims)):
        return None
    named = one_line(", ".join(on_devices), pod_state.MAX_MESSAGE)
    message = f"PersistentVolumeClaim is a block device: {named}; spec.domain.devices.filesystems needs volume mode Filesystem"
    return Obstacle(conditions.DISKS_READY, conditions.CLAIM_WITHOUT_FILES, message)


def claim_of_images_is_block(seen: Observed, _: power.Power) -> Obstacle | None:
    """Return an obstacle if the claim for images of the guest's memory is a block device."""
    if not (claim := disk_claims.images_on_device(seen.vm, seen.claims)):
        return None
    message = f"PersistentVolumeClaim {claim} is a block device: spec.managedSave needs volume mode Filesystem"
    return Obstacle(conditions.DISKS_READY, conditions.CLAIM_WITHOUT_FILES, message)


def claim_of_lun_is_filesystem(seen: Observed, _: power.Power) -> Obstacle | None:
    """Return an obstacle if the claim of a disk with ``device: lun`` is not a block device."""
    if not (without := disk_claims.luns_without_device(seen.vm, seen.claims)):
        return None
    named = one_line(", ".join(without), pod_state.MAX_MESSAGE)
    message = f"PersistentVolumeClaim is not a block device: {named}; device lun of a disk needs volume mode Block"
    return Obstacle(conditions.DISKS_READY, conditions.CLAIM_WITHOUT_DEVICE, message)


def storage_in_use(seen: Observed, _: power.Power) -> Obstacle | None:
    """Return an obstacle if another machine uses a claim, or a disk of a server, and both cannot have it at once."""
    return Obstacle(conditions.DISKS_READY, conditions.DISK_IN_USE, in_use(seen)) if seen.claims_in_use or seen.servers_in_use else None


def network_not_usable(seen: Observed, _: power.Power) -> Obstacle | None:
    """Return an obstacle if a NetworkAttachmentDefinition is missing or invalid."""
    if (found := networks.fault(seen.networks)) is None:
        return None
    return Obstacle(conditions.NETWORK_READY, *found, requeue_seconds=seen.settings.times.networks)


def handler_not_understood(seen: Observed, _: power.Power) -> Obstacle | None:
    """Return an obstacle if virt-handler of ``spec.nodeName`` is incompatible."""
    foreign = seen.incompatible.get(dig_vm(seen.vm, "spec", "nodeName") or "")
    return None if foreign is None else Obstacle(conditions.READY, conditions.HANDLER_NOT_UNDERSTOOD, foreign)


def node_not_found(seen: Observed, _: power.Power) -> Obstacle | None:
    """Return an obstacle if the cluster lacks the node in ``spec.nodeName``. Each pod there would count as failed."""
    if dig_vm(seen.vm, "spec", "nodeName") not in seen.evidence.unreachable.missing:
        return None
    message = (
        f'node "{dig_vm(seen.vm, "spec", "nodeName")}" not found; {unreachable_nodes.EDIT_NODE_NAME}; the virtual machine starts when the '
        "node exists"
    )
    return Obstacle(conditions.READY, unreachable_nodes.NODE_NOT_FOUND, message)


def node_fenced(seen: Observed, _: power.Power) -> Obstacle | None:
    """Return an obstacle if node ``spec.nodeName`` is fenced. Each pod there would be lost, and count as an attempt."""
    if (node := dig_vm(seen.vm, "spec", "nodeName")) not in seen.fenced:
        return None
    message = f"node {node} is fenced; the virtual machine starts there after the repair and kubectl virt unfence {node}"
    return Obstacle(conditions.READY, unreachable_nodes.NODE_FENCED, message)


def saved_on_another_node(seen: Observed, _: power.Power) -> Obstacle | None:
    """Return an obstacle if ``spec.nodeName`` is set, and another node is the only one where a suspended guest can resume."""
    wanted, node = dig_vm(seen.vm, "spec", "nodeName"), cpu.only_node(seen.vm)
    if not wanted or node in ("", wanted):
        return None
    return Obstacle(conditions.READY, SAVED_ON_ANOTHER_NODE, f"spec.nodeName is {wanted}, but {resumes_only_on(seen.vm, node)}")


def back_off(seen: Observed, decision: power.Power) -> Obstacle | None:
    """Return the wait after attempts that ended soon as an obstacle, or None. The machine keeps its phase."""
    if not (pause := attempts.pause_before(decision, seen.rested)):
        return None
    seconds, words = attempts.pause_seconds(decision), attempts.last_words(seen.vm)
    message = f"attempt {decision.attempt} starts {seconds:g} s after the previous one ended: {words}"
    return Obstacle(conditions.READY, summary.BACK_OFF, message, phase="", requeue_seconds=pause)


def turn_to_restart(seen: Observed, decision: power.Power) -> Obstacle | None:
    """Return an obstacle while other machines of lost nodes start first. A start that a user requested does not wait."""
    if decision.reason == "Requested" or not node_loss.is_lost(seen.vm):
        return None
    if (turn := restart_turns.turn(seen.vm, seen.lost, seen.settings.restarts, seen.now)) is None:
        return None
    message = "waits for its turn to restart after the loss of its node: the start order is by priority, a few at a time"
    return Obstacle(conditions.READY, restart_turns.QUEUED, message, requeue_seconds=max(turn.seconds, MIN_REQUEUE_SECONDS))


RULES: Final[tuple[Rule, ...]] = (
    claim_not_found,
    claim_being_deleted,
    claim_of_firmware_is_block,
    claim_of_filesystem_is_block,
    claim_of_images_is_block,
    claim_of_lun_is_filesystem,
    storage_in_use,
    network_not_usable,
    handler_not_understood,
    node_not_found,
    node_fenced,
    saved_on_another_node,
    back_off,
    turn_to_restart,
)
"""Those that a user removes come before those that pass with time."""


def resumes_only_on(vm: Object, node: str) -> str:
    """Return the message that the suspended guest resumes only on ``node``, which saved it."""
    has = "its memory on the disk" if managed_save.node_with(vm) else "the CPU"
    return (
        f"the suspended guest has {has} of node {node}, and resumes only there; to boot it without its memory: kubectl virt stop, "
        "then kubectl virt start --discard-state"
    )


def without_memory(name: str, claim: str) -> str:
    """Return the message for a suspended guest when the claim with its memory was deleted."""
    return (
        f"the suspended guest's memory was in {claim}, and a new claim does not have it; to boot without it: kubectl virt stop {name}, "
        f"create the claim, then kubectl virt start {name} --discard-state"
    )


def in_use(seen: Observed) -> str:
    """Return the message that the start waits for storage in use, of which ``seen`` must have some."""
    claims, servers = ([f"{what} by virtual machine {other}" for what, other in each] for each in (seen.claims_in_use, seen.servers_in_use))
    kinds = (("PersistentVolumeClaim", claims), ("disk of a server", servers), ("file", seen.files_in_use))
    held = one_line("; ".join(f"{kind} in use: {', '.join(found)}" for kind, found in kinds if found), pod_state.MAX_MESSAGE)
    return f"{held}; the virtual machine starts when that is no longer in use"
