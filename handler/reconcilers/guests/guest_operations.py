"""Operations of a running guest: the next request to virt-launcher, and their results. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from apiserver.apis.meta import times
from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.lifecycle import keys, managed_save, operations, power
from controller.runtime.recorder import EventType
from launcher.protocol import messages

MAX_MESSAGE: Final = 1024
MAX_PERCENT: Final = 100
LAUNCHER_TOO_OLD: Final = "virt-launcher of this machine is of an older version; restart or migrate the machine, then try again"
SUSPEND_TO_NODE_DISK: Final[messages.OperationAction] = "SuspendToNodeDisk"
PAUSED_SINCE: Final = "the virtual machine was paused later"
RESULTS: Final[Mapping[messages.OperationState, operations.Result]] = {"succeeded": operations.SUCCEEDED, "failed": operations.FAILED}
_DONE: Final[Mapping[str, tuple[str, str]]] = {
    operations.RESET: ("Reset", "the guest was reset"),
    operations.RESUME: ("Unpaused", "the guest continues"),
    operations.SOFT_REBOOT: ("RebootRequested", "the guest was asked to reboot, and may ignore it"),
    operations.INJECT_NMI: ("NMIInjected", "the guest got a non-maskable interrupt"),
    operations.SEND_KEY: ("KeysSent", "keys were pressed in the guest"),
    operations.SUSPEND: ("Saved", "the guest's memory is saved"),
    operations.FREEZE: ("Frozen", "the guest's file systems are frozen"),
    operations.THAW: ("Thawed", "the guest's file systems were thawed"),
}


@dataclass(frozen=True, slots=True)
class Fail:
    """Write that an operation failed: it cannot be carried out."""

    id: str
    message: str


@dataclass(frozen=True, slots=True)
class ResumeByRequest:
    """Have a launcher that knows no operations resume, and write the result; may be repeated."""

    id: str


Step = messages.Operate | ResumeByRequest | Fail


def next_step(vm: Mapping[str, Any], launcher: messages.Status, supported: frozenset[str]) -> Step | None:
    """Return the step for the first operation without a result; None if there is none or virt-launcher still works on it.

    ``supported``: the actions that this virt-launcher knows.
    """
    for operation in operations.unfinished(vm):
        told = launcher.operation_of(str(operation["id"]))
        if told is not None and told.state in RESULTS:
            continue
        if told is not None:
            return None
        action = operation["action"]
        if action == operations.RESUME and power.wants_paused(vm):
            return Fail(operation["id"], PAUSED_SINCE)
        if action == operations.RESUME and action not in supported:
            return ResumeByRequest(operation["id"])
        request = _request(operation)
        if request.action not in supported:
            return Fail(operation["id"], LAUNCHER_TOO_OLD)
        return request
    return None


def _request(operation: operations.Operation) -> messages.Operate:
    parameters = operation.get("parameters") or {}
    return messages.Operate(
        operation["id"],
        int(operation["number"]),
        SUSPEND_TO_NODE_DISK if managed_save.to_node_disk(operation) else operation["action"],
        keys.codes_of(parameters.get("keys") or ()),
        int(parameters.get("holdMilliseconds") or 0),
        int(parameters.get("unfreezeTimeoutSeconds") or 0),
    )


def with_results(vm: Mapping[str, Any], told: Sequence[messages.OperationStatus], now: datetime) -> list[Object]:
    """Return the machine's operations with the progress and results of its launcher; an existing result stays."""
    results = {each.id: each for each in told if each.state in RESULTS}
    advanced = {each.id: {"percent": each.percent} for each in told if 0 < each.percent <= MAX_PERCENT}
    moment, waiting = times.to_rfc3339(now), {each["id"] for each in operations.unfinished(vm)}
    found = []
    for operation in operations.of(vm):
        over = results.get(operation["id"]) if operation["id"] in waiting else None
        if over is None:
            found.append({**operation, **(advanced.get(operation["id"], {}) if operation["id"] in waiting else {})})
        else:
            found.append(operations.finished(operation, RESULTS[over.state], one_line(over.message, MAX_MESSAGE), moment))
    return found


def events(vm: Mapping[str, Any], status: Mapping[str, Any]) -> Iterator[tuple[EventType, str, str]]:
    """Yield type, reason and message of an Event for each operation unfinished in ``vm`` and finished in ``status``, the new one."""
    waiting = {each["id"] for each in operations.of(vm) if not operations.is_finished(each)}
    for operation in status.get("operations") or ():
        if operation["id"] not in waiting or not operations.is_finished(operation):
            continue
        if operation["result"] == operations.SUCCEEDED:
            action = str(operation["action"])  # perhaps of a newer version
            yield "Normal", *_DONE.get(action, (action, f"virt-launcher completed {action}"))
        else:
            yield "Warning", f"{operation['action']}Failed", str(operation.get("message") or "")
